// What trials multiply besides random numbers: the operands without their signs, and operands whose
// product is exact.
//
//     magnitudes  every number without its sign: their product is the sum of the products'
//                 magnitudes
//     whole       small whole numbers, some of them wide, in place of every number: see probe.py
//
// Template:  T  of the numbers: Float, Sixteen<BF16>, Sixteen<F16> or E4m3
// Launch:    blocks of THREADS threads; any grid

#include "half.cuh"
#include "splitmix.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    magnitudes(u64 bytes, const unsigned* __restrict__ x,
               unsigned* __restrict__ y,  // at multiples of 4 bytes
               unsigned mask)             // of 4 bytes of numbers: all bits but the signs
{
    const u64 words = bytes / 4, me = blockIdx.x * (u64)THREADS + threadIdx.x;
    for (u64 i = me; i < words; i += (u64)gridDim.x * THREADS) y[i] = x[i] & mask;
    if (me < bytes % 4) {
        const u64 i = 4 * words + me;
        ((unsigned char*)y)[i] = ((const unsigned char*)x)[i] & (unsigned char)(mask >> 8 * me);
    }
}

struct Float {
    using bits = unsigned;
    static __device__ __forceinline__ bool nothing(bits x) { return !(x << 1); }
    static __device__ __forceinline__ bits of(int number) { return __float_as_uint((float)number); }
};

template <Dtype D>
struct Sixteen {
    using bits = unsigned short;
    static __device__ __forceinline__ bool nothing(bits x) { return !(x & 0x7fff); }
    static __device__ __forceinline__ bits of(int number) { return pack<D>((float)number, 0.0f); }
};

struct E4m3 {  // of -2 … 2
    using bits = unsigned char;
    static __device__ __forceinline__ bool nothing(bits x) { return !(x & 0x7f); }
    static __device__ __forceinline__ bits of(int number)
    {
        return number ? (number < 0) << 7 | (abs(number) == 2 ? 0x40 : 0x38) : 0;
    }
};

template <class T>
__global__ void __launch_bounds__(THREADS) whole(
    u64 count, const typename T::bits* __restrict__ x, typename T::bits* __restrict__ y,
    int sparse,      // 1: x is the sparse operand, whose zeros stay; 0: the dense one
    unsigned share,  // of 4096 numbers: those that are unlike the rest
    int bits,        // of wide numbers; 0: there are none
    // Where number i lies along k, which the operands share: at i / stride % extent, `per`
    // neighbours as one; or in a sparse matrix of blocks of `area` numbers, `width` to a row, in
    // the column that col_idx has of its block.
    const int* __restrict__ col_idx, long long area, long long width, long long stride,
    long long extent, long long per, u64 key, u64 wide_key, u64 line_key)
{
    for (u64 i = blockIdx.x * (u64)THREADS + threadIdx.x; i < count;
         i += (u64)gridDim.x * THREADS) {
        const unsigned drawn = random_u32(key, i);
        const int other = (drawn & 4095) < share;
        int number = 1 + other;
        if (!sparse) number = 1 + (other ? (drawn & 4096 ? 1 : -1) : 0);
        else if (i / stride & 1) number = -number;
        if (bits && (drawn >> 13 & 4095) < share) {
            const u64 line =
                col_idx ? (u64)col_idx[i / area] * width + i % width : i / stride % extent / per;
            if ((random_u32(line_key, line) & 1) == sparse) {
                const unsigned more = random_u32(wide_key, i);
                number = 1 << (bits - 1) | (more & ((1 << (bits - 1)) - 1)) | 1;
                if (more >> 31) number = -number;
            }
        }
        y[i] = T::of(sparse && T::nothing(x[i]) ? 0 : number);
    }
}
