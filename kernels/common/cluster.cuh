// Thread block clusters: blocks that run at the same time and read each other's shared memory
// (sm_90; SASS: UCGABAR, LD.E).
#pragma once

// Everything before it, of every thread that is still there, is visible to the cluster after it.
__device__ __forceinline__ void cluster_barrier()
{
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

// 16 bytes at the same place in the shared memory of another block of the cluster.
__device__ __forceinline__ float4 load_remote(const void* shared, unsigned block)
{
    float4 x;
    asm volatile(
        "{ .reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %4, %5;\n"
        "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote]; }"
        : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
        : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))), "r"(block)
        : "memory");
    return x;
}
