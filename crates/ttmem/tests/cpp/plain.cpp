// Every header in a program that is compiled without exceptions.
#include <allocation_tracker.hpp>
#include <instrumented_helpers.hpp>
#include <tt-metalium/allocation_client.hpp>
#include <ttmem.hpp>
#include <ttmem/instrumented.hpp>

#ifdef __cpp_exceptions
#error "this must be compiled without exceptions"
#endif

#include "harness.hpp"

namespace plain {

struct Core {
    unsigned x, y;
};
struct Config {
    unsigned total_size = 48;
};
struct Program {};

inline int CreateCircularBuffer(Program&, const Core&, const Config&) { return 1; }

}  // namespace plain

int main() {
    plain::Program program;
    const ttmem::instrumented::OnDevice scope(2);
    CHECK(ttmem::instrumented::CreateCircularBufferWithTracking(program, plain::Core{0, 0}, plain::Config{}) == 1);
    tt::tt_metal::allocation_tracker::report_kernel_allocation(2, 64, 0u);
    stop("without exceptions");
}
