// State of the wrappers in instrumented.hpp: numbers and devices of programs.
//
// Not to be included by itself.
#ifndef TTMEM_INSTRUMENTED_REGISTRY_HPP
#define TTMEM_INSTRUMENTED_REGISTRY_HPP

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "../../ttmem.hpp"

// State that is shared by all libraries of a process, however they were compiled.
#define TTMEM_DETAIL_SHARED __attribute__((visibility("default")))

namespace ttmem::instrumented::detail {

/// Numbers of devices.
using DeviceList = std::vector<std::int32_t>;

/// Identity of a program: its own number, or its address.
struct Identity {
    enum class By : std::uint8_t { nothing, number, address } by = By::nothing;
    std::uint64_t value = 0;

    bool is_known() const noexcept { return by != By::nothing; }
    friend bool operator<(const Identity& a, const Identity& b) noexcept {
        return std::tie(a.by, a.value) < std::tie(b.by, b.value);
    }
};

struct Tally {
    std::atomic<std::uint64_t> tracked{0};
    std::atomic<std::uint64_t> without_device{0};
    std::atomic<std::uint64_t> failed{0};
};

TTMEM_DETAIL_SHARED inline Tally& tally() noexcept {
    static Tally instance;
    return instance;
}

/// Devices of this thread's innermost scope, or null.
TTMEM_DETAIL_SHARED inline const DeviceList*& innermost_device() noexcept {
    static thread_local const DeviceList* devices = nullptr;
    return devices;
}

/// Program of this thread's innermost scope, or null.
TTMEM_DETAIL_SHARED inline const Identity*& innermost_program() noexcept {
    static thread_local const Identity* program = nullptr;
    return program;
}

/// Runs a function and ignores its exceptions, except the cancellation of a thread. Without exceptions there is nothing to ignore.
template <class Work>
void swallow(Work work, [[maybe_unused]] std::atomic<std::uint64_t>& failures) {
#ifdef __cpp_exceptions
    try {
        work();
#ifdef __GLIBCXX__
    } catch (const abi::__forced_unwind&) {
        throw;
#endif
    } catch (...) {
        failures.fetch_add(1);
    }
#else
    work();
#endif
}

/// Programs and their numbers. There is one registry per process, which is never destroyed: destructors of other objects may still use
/// it.
class Registry {
public:
    /// Calls `report` with the program's number, 0 for none. The program is not removed meanwhile.
    template <class Report>
    auto with_program(const Identity& program, std::int32_t allocator, Report report) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return report(program.is_known() ? number(program, allocator) : 0);
    }

    /// Ends a program on all of its devices, if it is known.
    void forget(const Identity& program) {
        if (!program.is_known()) {
            return;
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = programs_.find(program);
        if (found == programs_.end()) {
            return;
        }
        // Entries that a forked child inherited belong to its parent.
        if (found->second.process == getpid()) {
            for (const std::int32_t allocator : found->second.allocators) {
                ttmem_end_program(allocator, found->second.number);
            }
        }
        programs_.erase(found);
    }

    /// Runs a function under the lock.
    template <class Work>
    auto alone(Work work) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return work();
    }

    /// Returns a number for memory without an address, so far from others that nothing seems to overlap: above all addresses and usual
    /// ids, and still exact in every JSON parser.
    std::uint64_t fresh(std::uint64_t bytes = 1) noexcept { return (std::uint64_t{1} << 48) + next_.fetch_add(bytes); }

private:
    friend Registry& registry();

    struct Program {
        std::uint32_t number = 0;
        pid_t process = 0;
        std::vector<std::int32_t> allocators;
    };

    Registry() {
        // A child that is forked while another thread holds the lock must not wait for that thread.
        pthread_atfork([] { the_mutex().lock(); }, [] { the_mutex().unlock(); }, [] { the_mutex().unlock(); });
    }

    static std::mutex& the_mutex();

    std::uint32_t number(const Identity& program, std::int32_t allocator) {
        Program& entry = programs_[program];
        if (entry.number == 0) {
            entry.number = ++last_number_;
        }
        if (entry.process != getpid()) {
            entry.process = getpid();
            entry.allocators.clear();
        }
        const bool known = std::find(entry.allocators.begin(), entry.allocators.end(), allocator) != entry.allocators.end();
        if (!known && allocator > 0) {
            entry.allocators.push_back(allocator);
        }
        return entry.number;
    }

    std::mutex mutex_;
    std::map<Identity, Program> programs_;
    std::uint32_t last_number_ = 0;
    std::atomic<std::uint64_t> next_{1};
};

TTMEM_DETAIL_SHARED inline Registry& registry() {
    static Registry& instance = *new Registry;
    return instance;
}

inline std::mutex& Registry::the_mutex() { return registry().mutex_; }

}  // namespace ttmem::instrumented::detail

#undef TTMEM_DETAIL_SHARED

#endif  // TTMEM_INSTRUMENTED_REGISTRY_HPP
