// direct: C = alpha * A * B + beta * C once, A read as it was brought, CSR with indices of 32 or 64
// bits and values of B's dtype.
//
// For a product that is not worth a plan: no task is laid out, no row moved. A warp has a row and
// 32 * COLUMNS columns of C; of a row that is longer than LONG, all warps of the block take a part
// and add their sums up in order. So the same call gives the same bits.
//
// Indices were looked at before (formats/intake.cu). Sums are float32, rounded once.
//
// Template:  Row, Col   types of row_ptr and col_idx: int or long long
//            T          float; BF16 or F16 as `Sixteen<T>`
//            WORDS      32-bit words of a load of B: 1, 2 or 4
#include "half.cuh"
#include "vec.cuh"

constexpr int WARPS = 8, UNROLL = 8, LONG = 1024;

struct Float {
    static constexpr int COLUMNS = 1;  // of a word
    using Value = float;
    static __device__ __forceinline__ float value(float x) { return x; }
    static __device__ __forceinline__ void multiply(float* acc, float a, unsigned word)
    {
        *acc = fmaf(a, __uint_as_float(word), *acc);
    }
    static __device__ __forceinline__ void add(float* to, float scale, unsigned word)
    {
        *to = fmaf(scale, __uint_as_float(word), *to);
    }
    static __device__ __forceinline__ unsigned packed(const float* x)
    {
        return __float_as_uint(*x);
    }
};

template <Dtype T>
struct Sixteen {
    static constexpr int COLUMNS = 2;
    using Value = unsigned short;
    static __device__ __forceinline__ float value(unsigned short x) { return unpack<T>(x).x; }
    static __device__ __forceinline__ void multiply(float* acc, float a, unsigned word)
    {
        add(acc, a, word);
    }
    static __device__ __forceinline__ void add(float* to, float scale, unsigned word)
    {
        const float2 x = unpack<T>(word);
        to[0] = fmaf(scale, x.x, to[0]), to[1] = fmaf(scale, x.y, to[1]);
    }
    static __device__ __forceinline__ unsigned packed(const float* x)
    {
        return pack<T>(x[0], x[1]);
    }
};

template <class Row, class Col, class T, int WORDS>
__global__ void __launch_bounds__(32 * WARPS, 4)
    direct(const Row* __restrict__ row_ptr, const Col* __restrict__ col_idx,
           const typename T::Value* __restrict__ val, const float* __restrict__ b,
           long long b_pitch, float* __restrict__ c, long long c_pitch,  // words
           int m, int width, float alpha, float beta)                    // words of a row of C
{
    constexpr int COLUMNS = WORDS * T::COLUMNS;
    __shared__ size_t places[WARPS][32];
    __shared__ float values[WARPS][32];
    __shared__ long long begins[WARPS], lengths[WARPS];
    __shared__ float parts[WARPS][COLUMNS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int blocks = (m + WARPS - 1) / WARPS, first = blockIdx.x % blocks * WARPS,
              row = first + warp;
    const int right = (blockIdx.x / blocks * 32 + lane) *
                      WORDS;  // beyond the row: anything is loaded, nothing stored
    const float* const from = b + (right < width ? right : 0);

    const auto sum = [&](float (&acc)[COLUMNS], long long begin, long long end) {
        for (long long at = begin; at < end; at += 32) {
            const int count = (int)min(32ll, end - at);
            __syncwarp();  // all have read what is overwritten
            if (lane < count) {
                places[warp][lane] = (size_t)col_idx[at + lane] * b_pitch;
                values[warp][lane] = T::value(val[at + lane]);
            }
            __syncwarp();
            for (int i = 0; i < count; i += UNROLL) {
                vec<WORDS> x[UNROLL];
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
                    x[u] =
                        i + u < count
                            ? load(reinterpret_cast<const vec<WORDS>*>(from + places[warp][i + u]))
                            : vec<WORDS>{};
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    const float a = i + u < count ? values[warp][i + u] : 0.f;
#pragma unroll
                    for (int w = 0; w < WORDS; ++w)
                        T::multiply(acc + w * T::COLUMNS, a, __float_as_uint(x[u].at[w]));
                }
            }
        }
    };
    const auto store = [&](float (&acc)[COLUMNS], int to_row) {
        if (right >= width) return;
        vec<WORDS>* const to = reinterpret_cast<vec<WORDS>*>(c + to_row * c_pitch + right);
        vec<WORDS> had = {}, out;
        if (beta != 0.f) had = *to;
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
#pragma unroll
            for (int i = 0; i < T::COLUMNS; ++i) acc[w * T::COLUMNS + i] *= alpha;
            if (beta != 0.f) T::add(acc + w * T::COLUMNS, beta, __float_as_uint(had.at[w]));
            out.at[w] = __uint_as_float(T::packed(acc + w * T::COLUMNS));
        }
        *to = out;
    };

    const long long begin = row < m ? row_ptr[row] : 0,
                    length = row < m ? row_ptr[row + 1] - begin : 0;
    if (length <= LONG && row < m) {
        float acc[COLUMNS] = {};
        sum(acc, begin, begin + length);
        store(acc, row);
    }
    if (!__syncthreads_or(length > LONG)) return;
    if (lane == 0) begins[warp] = begin, lengths[warp] = length;
    __syncthreads();
    for (int which = 0; which < WARPS; ++which) {
        const long long all = lengths[which];
        if (all <= LONG) continue;
        const long long share = (all + 32 * WARPS - 1) / (32 * WARPS) * 32;
        float acc[COLUMNS] = {};
        sum(acc, begins[which] + min(all, warp * share),
            begins[which] + min(all, (warp + 1) * share));
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i) parts[warp][i][lane] = acc[i];
        __syncthreads();
        if (warp == 0) {
#pragma unroll
            for (int i = 0; i < COLUMNS; ++i) {
                float total = parts[0][i][lane];
                for (int w = 1; w < WARPS; ++w) total += parts[w][i][lane];
                acc[i] = total;
            }
            store(acc, first + which);
        }
        __syncthreads();
    }
}
