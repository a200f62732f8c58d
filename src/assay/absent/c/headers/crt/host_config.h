/* Limits of the compiler of CUDA, of which this compiler needs none. */
