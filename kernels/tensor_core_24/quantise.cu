// A row of 16-bit floats, a token's features, in e4m3 with a scale of its own: its largest
// magnitude becomes 448.
//
// A block for each row reads it twice, the second time from L1 or L2. A row of zeros has the scale
// 1; a NaN or an infinity in it makes all of its products NaN, as in 16 bits.
//
// Template:  T  what a row is of, BF16 or F16
#include "half.cuh"
#include "store_eight.cuh"

constexpr int THREADS = 256;

template <Dtype T>
__global__ void __launch_bounds__(THREADS)
    quantised(const uint4* __restrict__ x, int units, uint2* __restrict__ to,
              float* __restrict__ scale)  // units: of 8 numbers of a row
{
    __shared__ float warps[THREADS / 32];
    const uint4* row = x + (size_t)blockIdx.x * units;
    float largest = 0.f;
    bool odd = false;
    for (int i = threadIdx.x; i < units; i += THREADS) {
        const uint4 four = row[i];
        for (unsigned word : {four.x, four.y, four.z, four.w}) {
            const float2 two = unpack<T>(word);
            largest = fmaxf(largest, fmaxf(fabsf(two.x), fabsf(two.y)));
            odd |= !(fabsf(two.x) <= 3.4e38f) || !(fabsf(two.y) <= 3.4e38f);
        }
    }
#pragma unroll
    for (int lane = 16; lane; lane /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lane));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
    odd = __syncthreads_or(odd);
#pragma unroll
    for (int w = 0; w < THREADS / 32; ++w) largest = fmaxf(largest, warps[w]);
    const float unit = largest > 0.f ? fmaxf(largest / 448.f, 1.2e-38f) : 1.f, times = 1.f / unit;
    if (threadIdx.x == 0) scale[blockIdx.x] = odd ? __int_as_float(0x7FC00000) : unit;
    for (int i = threadIdx.x; i < units; i += THREADS) {
        const uint4 four = row[i];
        const float2 a = unpack<T>(four.x), b = unpack<T>(four.y), c = unpack<T>(four.z),
                     d = unpack<T>(four.w);
        to[(size_t)blockIdx.x * units + i] = make_uint2(
            pack_e4m3(a.x * times, a.y * times) | pack_e4m3(b.x * times, b.y * times) << 16,
            pack_e4m3(c.x * times, c.y * times) | pack_e4m3(d.x * times, d.y * times) << 16);
    }
}
