// pitch: copies a matrix of 16-bit elements to rows of another length; what is longer there is filled with zeros.
//
// TMA wants rows that begin at multiples of 16 bytes. Where n is no multiple of 8, B is copied to such rows before the
// multiplication and C back from them after it, which costs what the chapter shows.

__global__ void pitch(
    int rows, int columns,                        // of the matrix
    const unsigned short* __restrict__ from, int from_pitch,  // elements of a row, at least `columns`
    unsigned short* __restrict__ to, int to_pitch)            // all of a row is written
{
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (long long)rows * to_pitch;
         i += (long long)gridDim.x * blockDim.x) {
        const int row = i / to_pitch, column = i % to_pitch;
        to[i] = column < columns ? from[(size_t)row * from_pitch + column] : 0;
    }
}
