// Holds memory that `cargo xtask prefix` knows the figures of, until its input ends.
#include <cstdio>
#include <ttmem.hpp>
#include <utility>

namespace {

bool failed = false;

void good(ttmem::Result result, const char* what) {
    if (!result) {
        std::fprintf(stderr, "%s: %s\n", what, result.text());
        failed = true;
    }
}

}  // namespace

int main() {
    using Client = ttmem::AllocationClient;
    if (!Client::is_enabled()) {
        std::fprintf(stderr, "tracking is off\n");
        return 1;
    }
    const std::int32_t mesh[] = {0, 1};
    good(Client::report_allocation(mesh, 2u << 20, ttmem::BufferType::dram, 0x1000), "weights");
    good(Client::report_allocation(1, 8192, ttmem::BufferType::l1, 0x2000), "activations");
    good(Client::report_cb_allocation(1, 4096, 0x3000), "circular buffer");
    {
        ttmem::Allocation first(1, 1024, ttmem::BufferType::l1, 0x8000);
        ttmem::Allocation moved = std::move(first);
        good(moved.result(), "scoped");
    }

    std::puts("holding");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }

    good(Client::report_cb_deallocation(1, 4096, 0x3000), "end of circular buffer");
    good(Client::report_deallocation(mesh, 0x1000), "free of weights");
    good(Client::report_deallocation(1, 0x2000), "free of activations");
    good(ttmem::close(), "close");
    return failed ? 1 : 0;
}
