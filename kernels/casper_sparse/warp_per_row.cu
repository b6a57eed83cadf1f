// warp_per_row: the published kernel, line by line (casperSPARSE, Fig. 2).
//
//   C (m x n) = A (m x k, CSR) . B (k x n),  float32, B and C row-major, 4 divides n.
//
// One warp owns one row of C. It walks the columns in tiles of 32 lanes x float4 = 128, and
// for every tile walks its row of A again, staging 32 non-zeros at a time in shared memory:
//
//     A, one row           shared memory of this warp        B                        C
//   ┌─────────────┐       ┌──────────────────────┐     lane 0  1  2 ... 31
//   │ x  x x  x ..│  ──►  │ scol[32]   sval[32]  │ ──► row scol[k]: 32 float4 ──► acc
//   └─────────────┘       └──────────────────────┘
//
// Template:  WARPS  warps (= rows of C) of a block; the source's THREADS_PER_BLOCK / 32

template <int WARPS>
__global__ void
warp_per_row(int m,                            // rows of A and C
             int n_vec,                        // columns of B and C, in float4
             const int* __restrict__ row_ptr,  // m + 1
             const int* __restrict__ col_idx,  // nnz
             const float* __restrict__ val,    // nnz
             const float4* __restrict__ B,     // k x n_vec
             float4* __restrict__ C)           // m x n_vec
{
    const int warp_id = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane_id = threadIdx.x % 32;
    if (warp_id >= m) return;

    const int start = row_ptr[warp_id];
    const int end = row_ptr[warp_id + 1];

    // 32 entries of its own for each warp: no other touches them, so __syncwarp suffices.
    __shared__ int sh_col[WARPS * 32];
    __shared__ float sh_val[WARPS * 32];
    const int warp_base = (threadIdx.x / 32) * 32;
    int* scol = &sh_col[warp_base];
    float* sval = &sh_val[warp_base];

    for (int col_offset = 0; col_offset < n_vec; col_offset += 32) {
        const int current_col = col_offset + lane_id;
        const bool active = current_col < n_vec;
        float4 acc = make_float4(0.f, 0.f, 0.f, 0.f);

        for (int i = start; i < end; i += 32) {
            const int t = min(32, end - i);  // non-zeros of this chunk
            if (lane_id < t) {
                scol[lane_id] = col_idx[i + lane_id];
                sval[lane_id] = val[i + lane_id];
            }
            __syncwarp();  // the chunk is complete
            if (active) {
                for (int k = 0; k < t; ++k) {
                    const float a = sval[k];
                    const float4 b = B[(size_t)scol[k] * n_vec + current_col];
                    acc.x += a * b.x;
                    acc.y += a * b.y;
                    acc.z += a * b.z;
                    acc.w += a * b.w;
                }
            }
            __syncwarp();  // everyone has read it, the next chunk may overwrite it
        }
        if (active) C[(size_t)warp_id * n_vec + current_col] = acc;
    }
}
