// The wrappers, with TT-Metal's current types. At each stop the test reads what is published.
#include <ttmem/instrumented.hpp>

#include <set>

#include "harness.hpp"
#include "today.hpp"

using namespace tt::tt_metal;
using ttmem::instrumented::AddKernelWithTracking;
using ttmem::instrumented::counts;
using ttmem::instrumented::CreateCircularBufferWithTracking;
using ttmem::instrumented::ForgetProgram;
using ttmem::instrumented::OnDevice;
using ttmem::instrumented::ProgramScope;

namespace {

const CoreRange square({0, 0}, {1, 1});

void one_device() {
    Device chip(3);
    IDevice* device = &chip;
    Program program;
    OnDevice scope(device);
    CHECK(chip.asked == 1);
    const CBHandle cb = CreateCircularBufferWithTracking(program, square, CircularBufferConfig(4096).set_page_size(0, 2048));
    CHECK(cb > 1000);
    const CoreRangeSet cores({CoreRange({0, 0}, {1, 1}), CoreRange({3, 3})});
    const KernelHandle kernel = AddKernelWithTracking(program, "reader.cpp", cores, DataMovementConfig{});
    CHECK(kernel == 0);
    CHECK(counts().tracked == 2 && counts().failed == 0 && counts().without_device == 0);
    stop("one device");

    // Equal circular buffers count twice, and programs are distinct.
    Program other;
    CreateCircularBufferWithTracking(program, square, CircularBufferConfig(4096));
    CreateCircularBufferWithTracking(other, CoreCoord{7, 7}, CircularBufferConfig(64));
    stop("two programs");
    ForgetProgram(program);
    stop("one forgotten");
    ForgetProgram(other);
    ForgetProgram(other);
    stop("all forgotten");
}

void views() {
    Device chip(0);
    Program program;
    const ProgramScope followed(program);
    const OnDevice scope(chip);
    const Buffer buffer{0x12000};
    CircularBufferConfig config(2048);
    config.set_globally_allocated_address(buffer).set_address_offset(0x100);
    CreateCircularBufferWithTracking(program, square, config);
    const experimental::GlobalCircularBuffer global;
    CreateCircularBufferWithTracking(program, square, CircularBufferConfig(1024), global);
    const auto before = counts();
    CreateCircularBufferWithTracking(program, square, config);
    CHECK(counts().tracked == before.tracked + 1 && counts().failed == before.failed);
    stop("views");
}

void meshes() {
    const auto mesh = std::make_shared<distributed::MeshDevice>(std::vector<int>{0, 1, 4, 5});
    Program program;
    const ProgramScope followed(program);
    {
        const OnDevice scope(mesh);
        CreateCircularBufferWithTracking(program, square, CircularBufferConfig(4096));
    }
    // A mesh passed as a device.
    const IDevice* disguised = mesh.get();
    const OnDevice scope(disguised);
    AddKernelWithTracking(program, "compute.cpp", CoreCoord{2, 3}, ComputeConfig{});
    stop("mesh");
}

void kinds_of_cores() {
    Device chip(0);
    Program program;
    const ProgramScope followed(program);
    const OnDevice scope(chip);
    CreateCircularBufferWithTracking(program, CoreSpec(CoreCoord{1, 2}), CircularBufferConfig(16));
    CreateCircularBufferWithTracking(program, CoreSpec(square), CircularBufferConfig(32));
    CreateCircularBufferWithTracking(program, CoreSpec(CoreRangeSet({square, CoreRange({5, 5})})), CircularBufferConfig(64));
    stop("kinds of cores");
    // Cores that a record cannot hold.
    CreateCircularBufferWithTracking(program, CoreCoord{16, 0}, CircularBufferConfig(128));
    AddKernelWithTracking(program, "wide.cpp", CoreRange({0, 0}, {16, 0}), ComputeConfig{});
    stop("wide cores");
}

void device_is_unknown() {
    Program program;
    const auto before = counts();
    CHECK(CreateCircularBufferWithTracking(program, square, CircularBufferConfig(4096)) > 1000);
    const IDevice* none = nullptr;
    const OnDevice scope(none);
    CHECK(AddKernelWithTracking(program, "reader.cpp", square, DataMovementConfig{}) > 0);
    CHECK(counts().without_device == before.without_device + 2 && counts().tracked == before.tracked);
    stop("no device");
}

void device_in_front() {
    Device chip(2), other(1);
    Program program;
    const ProgramScope followed(program);
    const OnDevice scope(other);
    CreateCircularBufferWithTracking(&chip, program, square, CircularBufferConfig(8192));
    AddKernelWithTracking(chip, program, "reader.cpp", square, DataMovementConfig{});
    stop("device in front");
    ForgetProgram(program);
    {
        const OnDevice number(7);
        CreateCircularBufferWithTracking(program, square, CircularBufferConfig(16));
    }
    const std::vector<int> devices = {4, 5};
    {
        const OnDevice numbers(devices);
        CreateCircularBufferWithTracking(program, square, CircularBufferConfig(32));
    }
    const OnDevice list({1, 2, 3});
    CreateCircularBufferWithTracking(program, square, CircularBufferConfig(64));
    stop("devices by number");
}

void exceptions() {
    Device chip(0), broken(13);
    Program program;
    const ProgramScope followed(program);
    const OnDevice scope(chip);
    const auto before = counts();
    try {
        AddKernelWithTracking(program, std::string(), square, DataMovementConfig{});
        CHECK(false);
    } catch (const Refused& refused) {
        CHECK(refused.code == 42 && std::string(refused.what()) == "no file");
    }
    CHECK(counts().tracked == before.tracked && counts().failed == before.failed);
    // Queries of the arguments may throw; the call is made all the same.
    CHECK(CreateCircularBufferWithTracking(&broken, program, square, CircularBufferConfig(4096)) > 1000);
    CHECK(CreateCircularBufferWithTracking(program, square, CircularBufferConfig(13)) > 1000);
    CHECK(CreateCircularBufferWithTracking(program, CoreRangeSet(), CircularBufferConfig(4096)) > 1000);
    CHECK(counts().tracked == before.tracked && counts().failed == before.failed + 3);
    const OnDevice worse(broken);
    CHECK(counts().failed == before.failed + 4);
    CHECK(CreateCircularBufferWithTracking(program, square, CircularBufferConfig(4096)) > 1000);
    CHECK(counts().without_device == before.without_device + 1);
    // A mesh with a device whose id is unknown is no device.
    const struct {
        std::vector<const Device*> devices;
        const std::vector<const Device*>& get_devices() const { return devices; }
    } mesh{{&chip, &broken}};
    const OnDevice worst(mesh);
    CHECK(counts().failed == before.failed + 5);
    CHECK(CreateCircularBufferWithTracking(program, square, CircularBufferConfig(4096)) > 1000);
    CHECK(counts().without_device == before.without_device + 2);
    stop("exceptions");
}

void addresses_are_used_again() {
    Device chip(0);
    const OnDevice scope(chip);
    std::optional<Program> slot(std::in_place);
    // Of a program that is destroyed without `ForgetProgram`.
    CreateCircularBufferWithTracking(*slot, square, CircularBufferConfig(512));
    for (int round = 0; round < 3; ++round) {
        slot.emplace();
        const ProgramScope followed(*slot);
        CreateCircularBufferWithTracking(*slot, square, CircularBufferConfig(4096));
        if (round == 1) {
            stop("address used again");
        }
        // Moved, as into a workload; the scope frees its memory all the same.
        const Program workload = std::move(*slot);
    }
    stop("scopes ended");
}

void off() {
    ttmem::close();
    Device chip(0);
    Program program;
    const auto before = counts();
    CHECK(CreateCircularBufferWithTracking(&chip, program, square, CircularBufferConfig(4096)) > 1000);
    CHECK(AddKernelWithTracking(&chip, program, "reader.cpp", square, DataMovementConfig{}) > 0);
    CHECK(chip.asked == 0);
    CHECK(counts().tracked == before.tracked && counts().without_device == before.without_device);
}

}  // namespace

int main() {
    one_device();
    views();
    meshes();
    kinds_of_cores();
    device_is_unknown();
    device_in_front();
    exceptions();
    addresses_are_used_again();
    off();
}
