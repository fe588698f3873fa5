// The old client's six messages, reported with the old names.
#include "harness.hpp"
#include "tt_metal/impl/allocator/allocation_client.hpp"

using tt::tt_metal::AllocationClient;

int main() {
    CHECK(AllocationClient::is_enabled());
    AllocationClient::report_allocation(1, 4096, 0, 0x1000);
    AllocationClient::report_allocation(2, 8192, 4, 0x123456789abc);
    AllocationClient::report_cb_allocation(3, 2048, 0x1a000);
    AllocationClient::report_kernel_load(4, 57344, 77, 2);
    stop("all held");
    AllocationClient::report_deallocation(1, 0x1000);
    AllocationClient::report_deallocation(2, 0x123456789abc);
    AllocationClient::report_cb_deallocation(3, 2048, 0x1a000);
    AllocationClient::report_kernel_unload(4, 57344, 77);
    stop("all free");
}
