// gpcs: which SMs the blocks of a cluster run on. The hardware keeps a cluster within one GPC, so
// they are of the same.
//
// Launched with so much shared memory that a block has its SM for itself, and a block stays until
// others have begun everywhere: otherwise a few SMs would do all the work.
#include "sm.cuh"

// found: one for every block; stay: clocks
__global__ void __launch_bounds__(32, 1) gpcs(unsigned* found, int stay)
{
    const long long since = clock64();
    if (threadIdx.x == 0) found[blockIdx.x] = sm_number();
    while (clock64() - since < stay) __nanosleep(100);
}
