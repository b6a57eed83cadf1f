// wgmma_three: 192 x 256 of C by three warpgroups that multiply and one that copies, with registers
// from the block's pool.
//
//   registers of a thread         at launch     from setmaxnreg on
//   multiply, three warpgroups        128             160    of the 512 that a quarter of an SM has
//   copy, one warpgroup               128              32    for a warp of each: 3 x 160 + 32
//
// The compiler wants to see 155 registers for an instruction of 256 columns, and to see them at
// launch, where four warpgroups have 128 (its error C7602). So it is told of 160, which the three
// have by the time they multiply, and the launch of 128 (`jit.launched_with`). Before setmaxnreg a
// thread uses a handful, which a test reads in the machine code. Of the tiles that fit, none reads
// less from shared memory for each element of C, and this brings fewer bytes to the SM than 128 x
// 256; and here copies run ahead.
//
// Steps come in whole rounds of the ring (`Reader::consume_rounds`): that the compiler knows where
// a stage is makes 160 enough. Beyond k they are zeros, with metadata of zeros.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "roles.cuh"
#include "sparse_reader.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, int EXTRA,
          Major B = MN_MAJOR, bool COLUMN = false, bool PACKED = false>
__global__ void __maxnreg__(160)
    wgmma_three(const __grid_constant__ TensorMap a,
                const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
                const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps,
                int high, int wide, int band,  // k in steps of 64, a multiple of STAGES; TileOrder
                float alpha, float beta, const unsigned short* c_in, const float* bias, int m,
                int n, int pitch,  // Scale: store.cuh
                int pieces)        // Operands
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES, B, PACKED>;
    static_assert(
        GROUPS == 3 && BLOCKS == 1, "the pool has 160 registers for each of three warpgroups");
    const Operands from{a, e, b, c, pieces};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    using Out = Store<T, BUFFERS, EXTRA, COLUMN>;
    multiply_tiles<InRounds<S>, S, 1, 32, 160>(
        Plain{from}, Resident{{high, wide, band}, steps}, Squares<Out, Scale>{c, scale});
}
