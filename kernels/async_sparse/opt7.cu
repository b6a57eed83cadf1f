// opt7: multicast. Two blocks of a cluster compute neighbouring tiles of one block row; the first
// loads A for both (section III-D).
//
//   block 0   A ──► both   B, panel 2c         a stage of block 0 is empty when the warpgroups of
//   block 1                B, panel 2c + 1     both blocks have left it
//
// C is stored from registers, written through the caches (__stwt), as the source has it.
//
// Template:  T, N  as in step.cuh; B is K_MAJOR; COLUMN as in output.cuh; STAGES of the ring
#include "cluster.cuh"
#include "specialised.cuh"

template <Dtype T, bool COLUMN, int N, int STAGES>
__global__ void __cluster_dims__(1, 2, 1) __launch_bounds__(THREADS, 1) opt7(
    const __grid_constant__ TensorMap a,  // values of the blocks, 64 rows each: boxes of 64 x K
    const __grid_constant__ TensorMap b,  // n x k: boxes of N x K
    const int* __restrict__ row_ptr, const int* __restrict__ col_idx, void* __restrict__ c,
    long long width, int m, int n)  // store_direct
{
    using R = Ring<T, N, STAGES>;
    extern __shared__ __align__(1024) unsigned char memory[];
    R& ring = *reinterpret_cast<R*>(memory);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int row = blockIdx.x, panel = blockIdx.y, rank = panel % 2, group = threadIdx.x / 128;
    const int first = row_ptr[row] * R::STEPS, end = row_ptr[row + 1] * R::STEPS;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) barrier_init(&full[s], 1), barrier_init(&empty[s], 4);
        barrier_init_fence();
    }
    cluster_barrier();
    Place<STAGES> at;
    if (group == 0) {
        give_registers<40>();
        if (threadIdx.x == 0) {
            const Policy policy = keep();
            for (int step = first; step < end; ++step, at.next()) {
                const int block = step / R::STEPS, part = step % R::STEPS,
                          k = (col_idx[block] * R::STEPS + part) * K<T>;
                wait(&empty[at.stage], at.parity ^ 1);
                arrive_expect(&full[at.stage], R::BYTES);
                if (rank == 0)
                    tma_multicast(
                        ring.a[at.stage], a, part * K<T>, block * 64, &full[at.stage], 3, policy);
                load_b<T, K_MAJOR, N>(ring.b[at.stage][0], b, k, 2 * panel * N, &full[at.stage]);
                load_b<T, K_MAJOR, N>(
                    ring.b[at.stage][1], b, k, (2 * panel + 1) * N, &full[at.stage]);
            }
        }
    } else {
        take_registers<232>();
        float acc[1][N / 2];
        if (first == end)
#pragma unroll
            for (int i = 0; i < N / 2; ++i) acc[0][i] = 0.f;
        for (int step = first; step < end; ++step, at.next()) {
            wait(&full[at.stage], at.parity);
            multiply_step<T, K_MAJOR, N>(
                acc, ring.a[at.stage], ring.b[at.stage][group - 1], step > first);
            wgmma_wait<0>();
            if (threadIdx.x % 128 < 2) arrive_remote(&empty[at.stage], threadIdx.x % 128);
        }
        settle(acc);
        store_direct<T, COLUMN, true, N>(
            acc, c, width, m, n, row * 64, (2 * panel + group - 1) * N);
    }
    cluster_barrier();  // nobody ends while the other may still arrive here
}
