/* The products of a layer, with what comes before (RMSNorm, quantisation) and after (bias, residual, SwiGLU). */
#include "linear.h"

enum { PLAIN, ADD, SWIGLU };
enum { MOST_WORK = 1500000 }; /* multiplications between two looks at what is left: some tens of microseconds */

typedef struct {
    const ft_linear *w;
    const ft_rows *x;
    int64_t rows, slab; /* slab: activation rows that stay in the cache while a piece of the weights passes */
    int64_t blocks;     /* blocks of the result */
    int kind;
    const float *residual;
    float *out;
    int64_t width; /* of the result */
} product;

static void emit(const product *p, int64_t token, int64_t first, const float *value) {
    const int64_t n = p->width - first < ROWS ? p->width - first : ROWS;
    float *out = p->out + token * p->width + first;
    float line[ROWS];
    memcpy(line, value, sizeof line);
    if (p->w->bias && p->kind != SWIGLU)
        for (int64_t r = 0; r < n; r++) line[r] += p->w->bias[first + r];
    if (p->kind == ADD) {
        const float *residual = p->residual + token * p->width + first;
        for (int64_t r = 0; r < n; r++) line[r] += residual[r];
    }
    if (n == ROWS) memcpy(out, line, sizeof line);
    else memcpy(out, line, (size_t)n * sizeof(float));
}

/* silu(gate) * up, where up's rows start at `width`. */
static void swiglu(const product *p, int64_t first, float *gate, float *up) {
    const float *bias = p->w->bias;
    if (bias)
        for (int r = 0; r < ROWS; r++) {
            gate[r] += bias[first + r];
            up[r] += bias[p->width + first + r];
        }
    for (int r = 0; r < ROWS; r += 8) {
        f8 g = f8_load(gate + r), u = f8_load(up + r);
        f8_store(gate + r, g / (f8_all(1.0f) + f8_exp(-g)) * u);
    }
}

static void piece(void *context, int64_t begin, int64_t end) {
    const product *p = context;
    float tile[TILE][ROWS] __attribute__((aligned(64))), other[TILE][ROWS] __attribute__((aligned(64)));
    for (int64_t i = begin; i < end; i++) {
        const int64_t block = i % p->blocks, start = i / p->blocks * p->slab;
        const int64_t stop = start + p->slab < p->rows ? start + p->slab : p->rows;
        for (int64_t t = start; t < stop; t += TILE) {
            const int64_t tokens = stop - t < TILE ? stop - t : TILE;
            ft_tile(p->w, block, p->x, t, tokens, tile);
            if (p->kind == SWIGLU) ft_tile(p->w, block + p->blocks, p->x, t, tokens, other);
            for (int64_t k = 0; k < tokens; k++) {
                if (p->kind == SWIGLU) swiglu(p, block * ROWS, tile[k], other[k]);
                emit(p, t + k, block * ROWS, tile[k]);
            }
        }
    }
}

static int run(const ft_linear *w, const float *x, int64_t rows, const float *norm, float eps, int kind,
               const float *residual, float *out) {
    ft_rows quantized;
    if (!rows) return 0;
    ft_enter();
    if (!ft_quantize(x, rows, w->in, norm, eps, &quantized)) {
        ft_leave();
        return 1;
    }
    product p = {.w = w, .x = &quantized, .rows = rows, .kind = kind, .residual = residual, .out = out};
    p.width = kind == SWIGLU ? w->out / 2 : w->out;
    p.blocks = (p.width + ROWS - 1) / ROWS;
    p.slab = (192 << 10) / w->in / TILE * TILE;
    if (p.slab < 4 * TILE) p.slab = 4 * TILE;
    const int64_t count = p.blocks * ((rows + p.slab - 1) / p.slab);
    int64_t chunk = count / (ft_thread_count() * 6);
    const int64_t work = w->in * ROWS * (rows < p.slab ? rows : p.slab) * (kind == SWIGLU ? 2 : 1);
    if (chunk > MOST_WORK / work) chunk = MOST_WORK / work;
    ft_parallel(piece, &p, count, chunk < 1 ? 1 : chunk);
    ft_leave();
    return 0;
}

/* norm(x) W^T + bias: [rows, in] -> [rows, out]. `norm` may be NULL. All return 0, or 1 when memory is out. */
FT_API int ft_norm_linear(const ft_linear *w, const float *x, int64_t rows, const float *norm, float eps, float *out) {
    return run(w, x, rows, norm, eps, PLAIN, NULL, out);
}

/* silu(gate) * up, the gate's rows first; out / 2 must be a multiple of 16: [rows, in] -> [rows, out / 2]. */
FT_API int ft_norm_linear_swiglu(const ft_linear *w, const float *x, int64_t rows, const float *norm, float eps,
                                 float *out) {
    return run(w, x, rows, norm, eps, SWIGLU, NULL, out);
}

/* residual + x W^T + bias: [rows, in], [rows, out] -> [rows, out]. `out` may be `residual`. */
FT_API int ft_linear_add(const ft_linear *w, const float *x, int64_t rows, const float *residual, float *out) {
    return run(w, x, rows, NULL, 0.0f, ADD, residual, out);
}
