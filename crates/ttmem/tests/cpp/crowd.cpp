// Many threads, and forks while they run.
#include <sys/wait.h>
#include <ttmem/instrumented.hpp>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "harness.hpp"
#include "today.hpp"

using namespace tt::tt_metal;
using namespace ttmem::instrumented;

namespace {

constexpr int threads = 8;
constexpr int rounds = 200;
const CoreRange square({0, 0}, {1, 1});

// Creates programs and forgets them; the last one stays.
void work(int number, std::vector<Program>& kept) {
    Device chip(number % 2);
    const OnDevice scope(chip);
    for (int round = 0; round < rounds; ++round) {
        Program program;
        {
            const ProgramScope followed(program);
            CreateCircularBufferWithTracking(program, square, CircularBufferConfig(4096));
            AddKernelWithTracking(program, "reader.cpp", square, DataMovementConfig{});
        }
        ttmem::AllocationClient::report_allocation(number % 2, 64, 1, 0x10000u + static_cast<unsigned>(number) * 64u);
        ttmem::AllocationClient::report_deallocation(number % 2, 0x10000u + static_cast<unsigned>(number) * 64u);
    }
    CreateCircularBufferWithTracking(kept[static_cast<std::size_t>(number)], square, CircularBufferConfig(100));
}

// Runs in a child: its parent's programs are not its own.
int run_child(Program& inherited) {
    const auto before = counts();
    ForgetProgram(inherited);
    Device chip(5);
    const OnDevice scope(chip);
    Program program;
    const ProgramScope followed(program);
    CreateCircularBufferWithTracking(program, square, CircularBufferConfig(4096));
    CreateCircularBufferWithTracking(inherited, square, CircularBufferConfig(64));
    ForgetProgram(inherited);
    return counts().tracked == before.tracked + 2 && counts().failed == before.failed ? 0 : 1;
}

pid_t fork_a_child(Program& inherited) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        set_time_limit();
        _exit(run_child(inherited));
    }
    return pid;
}

void wait_for(pid_t pid) {
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

int main() {
    std::vector<Program> kept(threads);
    Program inherited;
    Device chip(0);
    {
        const OnDevice scope(chip);
        CreateCircularBufferWithTracking(inherited, square, CircularBufferConfig(7));
    }
    std::vector<std::thread> crowd;
    for (int n = 0; n < threads; ++n) {
        crowd.emplace_back(work, n, std::ref(kept));
    }
    // Children are created while other threads work, also in the registry.
    for (int n = 0; n < 20; ++n) {
        wait_for(fork_a_child(inherited));
    }
    for (auto& one : crowd) {
        one.join();
    }
    // A child that is created while another thread has the registry's lock does not wait for that thread, which it lacks.
    std::atomic<bool> inside{false};
    std::thread busy([&] {
        detail::registry().alone([&] {
            inside = true;
            usleep(200'000);
        });
    });
    while (!inside) {
        std::this_thread::yield();
    }
    wait_for(fork_a_child(inherited));
    busy.join();
    CHECK(counts().failed == 0 && counts().without_device == 0);
    CHECK(counts().tracked == 1 + threads * (2 * rounds + 1));
    stop("crowd");

    // A child that keeps running, so that readers see it beside its parent.
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        set_time_limit();
        ForgetProgram(inherited);
        const OnDevice scope(chip);
        Program program;
        CreateCircularBufferWithTracking(program, square, CircularBufferConfig(3));
        stop("child");
        _exit(0);
    }
    wait_for(pid);
    stop("parent");
    ForgetProgram(inherited);
    for (auto& one : kept) {
        ForgetProgram(one);
    }
    stop("nothing");
}
