/* Which of the compiled kernels this processor can run, and what they are called with. */

#define EXPORTED __attribute__((visibility("default")))

/* Changes with the arguments or the meaning of any function. */
EXPORTED int flwr_dpkmeans_interface(void) { return 2; }

/* The suffix of the fastest functions that run here; tests choose another one. */
EXPORTED const char *flwr_dpkmeans_variant(void) {
#if defined(CHOSEN_VARIANT)
    return CHOSEN_VARIANT;
#elif defined(__x86_64__)
    __builtin_cpu_init();
    int has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int has_avx512 = __builtin_cpu_supports("avx512f") &&
                     __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("avx512dq");
    if (has_avx2 && has_avx512) return "_avx512";
    if (has_avx2) return "_avx2";
#endif
    return "_baseline";
}
