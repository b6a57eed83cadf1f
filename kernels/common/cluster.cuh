// Thread block clusters: blocks that run at the same time and read each other's shared memory (sm_90; SASS: UCGABAR, LD.E).
#pragma once

// Every thread of the cluster arrives and waits for all; what any wrote to shared memory before, every one sees after.
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Four floats from block `rank` of the cluster, where this block's `p` would be. p: in shared memory, a multiple of 16.
__device__ __forceinline__ float4 load_remote4(const float* p, unsigned rank)
{
    float4 x;
    asm volatile("{ .reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote]; }"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(p))), "r"(rank)
                 : "memory");
    return x;
}
