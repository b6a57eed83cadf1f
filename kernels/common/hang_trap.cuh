// Waits that end: where HANG_TRAP is defined, a wait that has turned 2^28 times prints its caller's
// file and line, and stops the kernel with an error instead of the GPU for good. `jit` defines it
// where SPARSITY_HANG_TRAP is set; otherwise nothing of it is compiled.
//
// It holds for the waits of mbarrier.cuh and handover.cuh and for scan.cuh, which are all that
// turn. Barriers of a block or a cluster, and setmaxnreg, wait in hardware and have no limit: who
// keeps others from one of them by a wait of these is found.
#pragma once

#ifdef HANG_TRAP

// Behind the parameters of a function that waits: where it was called; and behind the arguments of
// one that it calls.
#define CALLER , const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define OF_CALLER , file, line

struct Turns {
    unsigned taken = 0;
    // many: turns that one counts for; a look at global memory takes as long as some at shared
    // memory.
    __device__ __forceinline__ void count(unsigned many CALLER)
    {
        if (((taken += many) >> 28) == 0) return;
        printf("%s:%d: block (%d, %d, %d), thread %d waits for what does not come\n", file, line,
               blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x);
        __trap();
    }
};

#else

#define CALLER
#define OF_CALLER
struct Turns {
    __device__ __forceinline__ void count(unsigned) {}
};

#endif
