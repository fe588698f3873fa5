// Every header in both units of one program. This half has `main`; other_half.cpp is the other.
#include <allocation_tracker.hpp>
#include <instrumented_helpers.hpp>
#include <tt-metalium/allocation_client.hpp>
#include <ttmem.hpp>
#include <ttmem/instrumented.hpp>

#include "harness.hpp"
#include "today.hpp"

using namespace tt::tt_metal;

void make_in_the_other_half(Program& program);

#ifdef OTHER_HALF

void make_in_the_other_half(Program& program) {
    ttmem::instrumented::CreateCircularBufferWithTracking(program, CoreCoord{1, 1}, CircularBufferConfig(50));
}

#else

int main() {
    Device chip(1);
    Program program;
    // The scope applies to both halves.
    const ttmem::instrumented::OnDevice scope(chip);
    make_in_the_other_half(program);
    ttmem::instrumented::CreateCircularBufferWithTracking(program, CoreCoord{0, 0}, CircularBufferConfig(40));
    stop("both halves");
    ttmem::instrumented::ForgetProgram(program);
    stop("nothing");
}

#endif
