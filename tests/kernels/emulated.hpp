// CUDA's kernels on the host: a thread is a fiber, which waits for its block or its warp; blocks run one after the other.
// A fiber is made once and goes on from block to block, by _setjmp and _longjmp: swapcontext asks the kernel each time.
#undef _FORTIFY_SOURCE  // its longjmp takes another stack for an error
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __shared__ static

using std::isnan, std::isfinite, std::max, std::min;

struct Place { unsigned x, y; };
static Place blockIdx, blockDim, threadIdx, gridDim;
struct int4 { int x, y, z, w; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static float2 make_float2(float x, float y) { return {x, y}; }

struct Fiber {
    jmp_buf at;
    std::vector<char> stack;
    bool begun, done;
    int waits;  // 0: not; 1: for its warp; 2: for its block
};
static std::vector<Fiber> fibers;
static jmp_buf scheduler;
static std::function<void()> work;
static unsigned long long slots[1024];

static void leave()
{
    if (!_setjmp(fibers[threadIdx.x].at)) _longjmp(scheduler, 1);
}
static void wait_for(int whom)
{
    fibers[threadIdx.x].waits = whom;
    leave();
}
static void run_fiber()
{
    for (;;) {
        work();
        fibers[threadIdx.x].done = true;
        leave();
    }
}
static void enter(Fiber& f)
{
    if (_setjmp(scheduler)) return;
    if (f.begun) _longjmp(f.at, 1);
    f.begun = true;
    ucontext_t at;
    getcontext(&at);
    f.stack.resize(1 << 16);
    at.uc_stack.ss_sp = f.stack.data(), at.uc_stack.ss_size = f.stack.size(), at.uc_link = nullptr;
    makecontext(&at, run_fiber, 0);
    setcontext(&at);
}
static void run_block(int threads)
{
    if ((int)fibers.size() < threads) fibers.resize(threads);
    for (int t = 0; t < threads; ++t) fibers[t].done = false, fibers[t].waits = 0;
    for (bool some = true; some;) {
        some = false;
        for (int t = 0; t < threads; ++t)
            if (!fibers[t].done && !fibers[t].waits) {
                some = true, threadIdx.x = t;
                enter(fibers[t]);
            }
        if (some) continue;
        auto arrived = [&](int from, int to, int whom) {
            bool all = true, any = false;
            for (int t = from; t < to; ++t) {
                all &= fibers[t].done || fibers[t].waits == whom;
                any |= !fibers[t].done && fibers[t].waits == whom;
            }
            if (!all || !any) return false;
            for (int t = from; t < to; ++t) fibers[t].waits = 0;
            return true;
        };
        for (int t = 0; t < threads; t += 32) some |= arrived(t, std::min(t + 32, threads), 1);
        if (!some) some = arrived(0, threads, 2);
    }
    for (int t = 0; t < threads; ++t)
        if (!fibers[t].done) __builtin_trap();  // somebody waits for who does not come
}

static void __syncthreads() { wait_for(2); }
static void __threadfence() {}
static void __threadfence_system() {}
static int __syncthreads_or(int x)
{
    static int flag;
    if (threadIdx.x == 0) flag = 0;
    wait_for(2);
    flag |= x != 0;
    wait_for(2);
    const int found = flag;
    wait_for(2);
    return found;
}
// What every lane of a warp brings, to each of them.
template <class T, class Take>
static auto exchanged(T x, Take take)
{
    static_assert(sizeof(T) <= 8);
    const int lane = threadIdx.x % 32;
    unsigned long long* mine = slots + threadIdx.x - lane;
    memcpy(mine + lane, &x, sizeof(T));
    wait_for(1);
    auto got = take([&](int other) {
        T y;
        memcpy(&y, mine + other, sizeof(T));
        return y;
    }, lane);
    wait_for(1);
    return got;
}
template <class T>
static T __shfl_xor_sync(unsigned, T x, int step) { return exchanged(x, [&](auto of, int lane) { return of(lane ^ step); }); }
template <class T>
static T __shfl_up_sync(unsigned, T x, int step) { return exchanged(x, [&](auto of, int lane) { return of(lane < step ? lane : lane - step); }); }
template <class T>
static T __shfl_down_sync(unsigned, T x, int step) { return exchanged(x, [&](auto of, int lane) { return of(lane + step > 31 ? lane : lane + step); }); }
static unsigned __ballot_sync(unsigned, bool x)
{
    return exchanged((int)x, [&](auto of, int) {
        unsigned all = 0;
        for (int lane = 0; lane < 32; ++lane) all |= (unsigned)(of(lane) != 0) << lane;
        return all;
    });
}
static bool __all_sync(unsigned mask, bool x) { return __ballot_sync(mask, x) == ~0u; }
template <class T, class U>
static T atomicAdd(T* at, U x) { const T had = *at; *at += x; return had; }
template <class T, class U>
static T atomicMax(T* at, U x) { const T had = *at; if ((T)x > had) *at = x; return had; }
template <class T, class U>
static T atomicMin(T* at, U x) { const T had = *at; if ((T)x < had) *at = x; return had; }
template <class T, class U>
static T atomicExch(T* at, U x) { const T had = *at; *at = x; return had; }
template <class T, class U>
static T atomicOr(T* at, U x) { const T had = *at; *at |= x; return had; }
static unsigned atomicInc(unsigned* at, unsigned most) { const unsigned had = *at; *at = had >= most ? 0 : had + 1; return had; }
template <class T>
static T atomicCAS(T* at, T was, T x) { const T had = *at; if (had == was) *at = x; return had; }
static void __syncwarp() { wait_for(1); }
template <class T>
static T __shfl_sync(unsigned, T x, int from) { return exchanged(x, [&](auto of, int) { return of(from); }); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
template <class T>
static T __ldg(const T* at) { return *at; }
template <class T>
static T __ldcg(const T* at) { return *at; }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __ffs(int x) { return __builtin_ffs(x); }
static int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
static float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static long long __double_as_longlong(double x) { long long y; memcpy(&y, &x, 8); return y; }
static double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }

// half.cuh
enum Dtype { BF16, F16, TF32 };
template <Dtype T>
static unsigned pack(float low, float high)
{
    auto one = [](float x) -> unsigned {
        if (isnan(x)) return 0x7FFF;
        if (T == F16) {
            _Float16 y = (_Float16)x;
            uint16_t bits;
            memcpy(&bits, &y, 2);
            return bits;
        }
        const unsigned wide = __float_as_uint(x);
        return (wide + 0x7FFF + (wide >> 16 & 1)) >> 16;
    };
    return one(low) | one(high) << 16;
}
template <Dtype T>
static float2 unpack(unsigned two)
{
    auto one = [](unsigned bits) -> float {
        if (T == BF16) return __uint_as_float(bits << 16);
        uint16_t narrow = (uint16_t)bits;
        _Float16 y;
        memcpy(&y, &narrow, 2);
        return (float)y;
    };
    return {one(two & 0xFFFF), one(two >> 16)};
}

// A kernel with its arguments, each at an address, in so many blocks.
template <class... A, size_t... I>
static void called(void (*kernel)(A...), void** given, std::index_sequence<I...>)
{
    kernel(*(A*)given[I]...);
}
template <class... A>
static void launched(void (*kernel)(A...), int blocks, int panels, int threads, void** given)
{
    gridDim.x = blocks, gridDim.y = panels, blockDim.x = threads;
    work = [&] { called(kernel, given, std::index_sequence_for<A...>{}); };
    for (int b = 0; b < blocks * panels; ++b) blockIdx.x = b % blocks, blockIdx.y = b / blocks, run_block(threads);
}
