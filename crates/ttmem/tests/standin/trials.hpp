// Trials with many repetitions or many threads.
#pragma once

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <set>
#include <sstream>
#include <thread>

#include "programs.hpp"

using namespace tt::tt_metal;

// The agent's struct (probe.rs) for the statistics of an allocator.
struct Figure {
    uint64_t allocator, space, banks, allocated, free, largest_free_per_bank;
};

namespace {

constexpr BufferType TYPES[] = {BufferType::DRAM, BufferType::L1, BufferType::L1_SMALL, BufferType::TRACE};
constexpr const char *NAMES[] = {"dram", "l1", "l1_small", "trace"};

// A buffer in DRAM.
Plan dram_plan(uint64_t page, uint32_t pages) {
    Plan plan;
    plan.page = page;
    plan.pages = pages;
    return plan;
}

// Describes what a function throws; "fine" if it throws nothing.
template <typename F>
std::string thrown(F work) {
    try {
        work();
        return "fine";
    } catch (const tt::Fatal &fatal) {
        return "fatal " + std::to_string(fatal.value) + " " + fatal.why;
    } catch (const std::bad_alloc &) {
        return "bad_alloc";
    } catch (int value) {
        return "int " + std::to_string(value);
    } catch (const std::runtime_error &error) {
        std::string what = error.what();
        std::replace(what.begin(), what.end(), '\n', '|');
        return "error " + what;
    }
}

// The agent's figures of every allocator and space: banks, allocated bytes, free bytes and the largest free block.
std::multiset<std::string> figures() {
    std::multiset<std::string> lines;
    auto read = reinterpret_cast<size_t (*)(Figure *, size_t)>(dlsym(RTLD_DEFAULT, "ttmem_agent_figures"));
    if (read == nullptr) return {"no agent"};
    std::vector<Figure> all(1000);
    all.resize(read(all.data(), all.size()));
    for (const Figure &figure : all) {
        std::ostringstream line;
        line << (figure.space >= 1 && figure.space <= 4 ? NAMES[figure.space - 1] : "another") << ' ' << figure.banks << ' '
             << figure.allocated << ' ' << figure.free << ' ' << figure.largest_free_per_bank;
        lines.insert(line.str());
    }
    return lines;
}

int wait_for(int child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

uint32_t random(uint64_t &state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33);
}

// Runs many threads on one allocator, with failures of every kind. Returns how many there were; -1: one arrived changed.
int threads(Runtime *runtime, IDevice *device, int count, int rounds) {
    std::atomic<int> failures = 0, wrong = 0;
    std::vector<std::thread> all;
    for (int n = 0; n < count; n++) {
        all.emplace_back([&, n] {
            uint64_t state = static_cast<uint64_t>(n) + 1;
            std::vector<Buffer *> own;
            for (int round = 0; round < rounds; round++) {
                Failure &next = runtime->next();
                int value = static_cast<int>(random(state) % 1000);
                const std::string expected[] = {"fine", "fatal " + std::to_string(value) + " injected", "bad_alloc",
                    "int " + std::to_string(value)};
                auto kind = random(state) % 12 >= 4 ? Failure::NONE : Failure::Kind(random(state) % 4);
                bool frees = !own.empty() && random(state) % 2;
                next = {kind, frees ? Failure::BEFORE_FREE : Failure::ALLOCATE, value};
                std::string what = thrown([&] {
                    if (frees) {
                        runtime->destroy(own.back(), true);
                        own.pop_back();
                    } else {
                        Plan plan = dram_plan(16 + random(state) % 4096 / 16 * 16, 1 + random(state) % 8);
                        // Very many do not fit into L1.
                        plan.type = TYPES[random(state) % (count < 100 ? 2 : 1)];
                        own.push_back(runtime->create(device, plan));
                    }
                });
                failures += kind != Failure::NONE;
                wrong += what != expected[kind];
                next = {};
            }
            // Half of the memory stays allocated, without a buffer object.
            for (size_t n = 0; n < own.size(); n++) runtime->destroy(own[n], n % 2);
        });
    }
    for (std::thread &thread : all) thread.join();
    return wrong ? -1 : failures.load();
}

// Creates and destroys allocators in several threads while they are queried.
void storm(Runtime *runtime, int count, int rounds) {
    std::atomic<bool> running = true;
    std::thread querying([&] {
        while (running) figures();
    });
    std::vector<std::thread> all;
    for (int n = 0; n < count; n++) {
        all.emplace_back([=] {
            for (int round = 0; round < rounds; round++) {
                IDevice *device = round % 3 ? runtime->open_mesh(n, 1, 1024) : runtime->open_device(n);
                runtime->destroy(runtime->create(device, dram_plan(2048, 1)), round % 2);
                runtime->close(device);
            }
        });
    }
    for (std::thread &thread : all) thread.join();
    running = false;
    querying.join();
}

// Creates, dispatches, changes and drops programs on a mesh of their own, with a trace.
void run_program_life(Runtime *runtime, int chip, uint64_t &state) {
    Programs *to = runtime->programs();
    IDevice *mesh = runtime->open_mesh(chip, 2, 0);
    CoreRangeSet cores{{{{random(state) % 4, 0}, {4 + random(state) % 4, 3}}}};
    ProgramPlan plan;
    plan.config = 16 + random(state) % 64 * 16;
    plan.parts = {{PartPlan::KERNEL, 0, 0, "live", true, cores}, {PartPlan::CB, 64, 0, "", false, cores},
        {PartPlan::VIEW, 64, 500000, "", false, cores}, {PartPlan::DFB, 32, 0, "", false, cores}, {PartPlan::PAD, 16, 0, "", false, {}}};
    std::vector<Programs::Workload *> all;
    for (int n = 0; n < 3; n++) {
        Program *programs[] = {to->make(plan, Programs::WORKLOAD, mesh), to->make(plan, Programs::FABRIC, mesh)};
        all.push_back(to->make_workload());
        for (size_t chip : {0, 1}) to->add(all.back(), chip, chip, programs[chip]);
        to->enqueue(mesh, 0, all.back());
        to->move_views(programs[0], 600000);
        to->resize_cbs(programs[1], 128);
        to->enqueue(mesh, 0, all.back());
        for (Program *program : programs) to->drop(program);
    }
    to->trace(Programs::BEGIN, mesh, 0, 1);
    for (Programs::Workload *workload : all) to->enqueue(mesh, 0, workload);
    to->trace(Programs::END, mesh, 0, 1);
    bool closed_first = random(state) % 2;
    if (!closed_first) to->drop(all[0]);
    to->trace(Programs::REPLAY, mesh, 0, 1);
    if (random(state) % 2) to->trace(Programs::RELEASE, mesh, 0, 1);
    if (closed_first) runtime->close(mesh);
    for (size_t n = !closed_first; n < all.size(); n++) to->drop(all[n]);
    if (!closed_first) runtime->close(mesh);
}

// Runs many lives of programs in parallel.
void run_program_lives(Runtime *runtime, int count, int rounds) {
    std::vector<std::thread> all;
    for (int n = 0; n < count; n++) {
        all.emplace_back([=] {
            uint64_t state = static_cast<uint64_t>(n) + 1;
            for (int round = 0; round < rounds; round++) run_program_life(runtime, n, state);
        });
    }
    for (std::thread &thread : all) thread.join();
}

// Creates allocators with a buffer each, one after another or all at once.
void crowd(Runtime *runtime, int count, bool at_once) {
    std::vector<IDevice *> open;
    for (int n = 0; n < count; n++) {
        open.push_back(runtime->open_mesh(n % 32, 1, 0));
        runtime->destroy(runtime->create(open.back(), dram_plan(2048, 1)), false);
        if (at_once) continue;
        runtime->close(open.back());
        open.pop_back();
    }
    for (IDevice *device : open) runtime->close(device);
}

// Forks while another thread creates allocators, or uses programs; each child does so, too. Returns how many children failed.
int fork_while_busy(Runtime *runtime, int count, bool programs) {
    std::atomic<bool> running = true;
    uint64_t state = 1;
    // The runtime's own static variables are initialised first. One that another thread initialises at the time of a fork would
    // never be in the child, with or without the agent.
    crowd(runtime, 1, false);
    if (programs) run_program_life(runtime, 4, state);
    std::thread other([&] {
        while (running) programs ? run_program_life(runtime, 4, state) : crowd(runtime, 1, false);
    });
    int failed = 0;
    for (int n = 0; n < count; n++) {
        int child = fork();
        if (child == 0) {
            alarm(30);
            uint64_t state = 2;
            if (programs) run_program_life(runtime, 0, state);
            IDevice *device = runtime->open_mesh(0, 1, 0);
            runtime->create(device, dram_plan(64, 1));
            _exit(0);
        }
        failed += wait_for(child) != 0;
    }
    running = false;
    other.join();
    return failed;
}

}  // namespace
