/* A low-bit weight, packed for products.
 *
 * Output rows come in blocks of 16 (the last one padded with zero weights), inputs in groups of 32. A block is its
 * groups one after the other, each with float16 scales first:
 *
 *   4 bits, 320 bytes: scale[16], low[16], then 4 lines of 64 bytes. Byte 4r + i of line s holds inputs 4s + i (low
 *           nibble) and 16 + 4s + i (high nibble) of row r. weight = scale * nibble + low.
 *   8 bits, 544 bytes: scale[16], then 8 lines of 64 bytes. Byte 4r + i of line s is input 4s + i of row r, signed.
 *           weight = scale * byte.
 *
 * So 16 rows sit side by side in a vector, and 4 inputs of one activation row are broadcast to all of them.
 */
#ifndef FT_LINEAR_H
#define FT_LINEAR_H

#include "common.h"

enum { ROWS = 16, GROUP = 32, BYTES4 = 320, BYTES8 = 544 };

typedef struct {
    int64_t bits; /* 4 or 8 */
    int64_t out, in;
    uint8_t *data;
    const float *bias; /* [out], or NULL */
} ft_linear;

static inline int64_t blocks_of(const ft_linear *w) { return (w->out + ROWS - 1) / ROWS; }
static inline int64_t groups_of(const ft_linear *w) { return w->in / GROUP; }
static inline int64_t group_bytes(const ft_linear *w) { return w->bits == 4 ? BYTES4 : BYTES8; }

/* Activations in int8 with a scale per row and group of 32: x = scale * q; `sum` is the group's sum of q. */
typedef struct {
    const int8_t *q;      /* [rows, in] */
    const float *scale;   /* [rows, groups] */
    const float *low;     /* [rows, groups], scale * sum */
    const int32_t *sum;   /* [rows, groups] */
} ft_rows;

/* RMSNorm (where `norm` is not NULL) and quantisation of [rows, in], into scratch. False when memory is out. */
int ft_quantize(const float *x, int64_t rows, int64_t in, const float *norm, float eps, ft_rows *out);

/* The tile products: 16 output rows of one block times `tokens` (at most TILE) activation rows from `first` on. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
enum { TILE = 8 };
#else
enum { TILE = 4 };
#endif
void ft_tile(const ft_linear *w, int64_t block, const ft_rows *x, int64_t first, int64_t tokens, float (*out)[ROWS]);

#endif
