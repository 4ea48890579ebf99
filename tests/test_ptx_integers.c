/* test_ptx_integers.c: the PTX interpreter's integers, bits, comparisons and predicates, instruction by instruction,
 * at their edges, against plain C. Hand-written PTX: needs no NVRTC. */
#include "ptx_instruction.h"

/* uses: fakeptx */

/* ---- integers ---------------------------------------------------------------------------------------------------- */

static u32 bits_reversed(u32 v)
{
    u32 r = 0;
    for (int k = 0; k < 32; k++) r |= (v >> k & 1) << (31 - k);
    return r;
}
static u32 leading(u64 v, int width)
{
    u32 n = 0;
    while ((int)n < width && !(v >> (width - 1 - (int)n) & 1)) n++;
    return n;
}
static u32 ones(u64 v)
{
    u32 n = 0;
    for (; v; v >>= 1) n += v & 1;
    return n;
}
static u32 byte_permuted(u32 a, u32 b, u32 s)
{
    u8 from[8], to[4];
    memcpy(from, &a, 4), memcpy(from + 4, &b, 4);
    for (int k = 0; k < 4; k++) {
        to[k] = from[s >> 4 * k & 7];
        if (s >> (4 * k + 3) & 1) to[k] = (u8)((s8)to[k] < 0 ? 255 : 0);
    }
    u32 r;
    memcpy(&r, to, 4);
    return r;
}
static u64 shifted_left(u64 v, u32 n, u32 width) { return n >= width ? 0 : v << n; }
static s64 shifted_right(s64 v, u32 n) { return n > 63 ? (v < 0 ? -1 : 0) : v >> n; }
static s64 extracted(s64 v, u32 at, u32 n, int width, bool is_signed) /* by the manual's loop over bits */
{
    at &= 255, n &= 255;
    const int msb = width - 1, last = (int)(at + n) - 1;
    const u64 sign = !is_signed || n == 0 ? 0 : (u64)v >> (last < msb ? last : msb) & 1;
    u64 d = 0;
    for (int i = 0; i <= msb; i++) d |= (i < (int)n && i + (int)at <= msb ? (u64)v >> (i + (int)at) & 1 : sign) << i;
    return (s64)d;
}
static u64 inserted(u64 a, u64 b, u32 at, u32 n, int width)
{
    u64 f = b;
    at &= 255, n &= 255;
    for (int i = 0; i < (int)n && i + (int)at < width; i++) {
        f &= ~(1ull << (i + (int)at));
        f |= (a >> i & 1) << (i + (int)at);
    }
    return f;
}
static u32 table3(u32 a, u32 b, u32 c, u32 t)
{
    u32 r = 0;
    for (int k = 0; k < 32; k++) r |= (t >> ((a >> k & 1) * 4 + (b >> k & 1) * 2 + (c >> k & 1)) & 1) << k;
    return r;
}
static s32 clamped(s64 v) { return (s32)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v); }

#define INTEGER_CASES(_) \
    _("add.s32 $d, $a, $b;", "www", (u32)a + (u32)b) \
    _("add.s64 $d, $a, $b;", "ddd", a + b) \
    _("add.u16 $d, $a, $b;", "hhh", (u16)(a + b)) \
    _("add.sat.s32 $d, $a, $b;", "www", (u32)clamped((s64)(s32)a + (s32)b)) \
    _("sub.s32 $d, $a, $b;", "www", (u32)a - (u32)b) \
    _("sub.s16 $d, $a, $b;", "hhh", (u16)(a - b)) \
    _("mul.lo.s32 $d, $a, $b;", "www", (u32)a * (u32)b) \
    _("mul.lo.u64 $d, $a, $b;", "ddd", a * b) \
    _("mul.lo.s16 $d, $a, $b;", "hhh", (u16)((u32)a * (u32)b)) \
    _("mul.hi.s32 $d, $a, $b;", "www", (u32)((u64)((s64)(s32)a * (s32)b) >> 32)) \
    _("mul.hi.u32 $d, $a, $b;", "www", (u64)(u32)a * (u32)b >> 32) \
    _("mul.hi.s64 $d, $a, $b;", "ddd", (u64)((u128)((s128)(s64)a * (s64)b) >> 64)) \
    _("mul.hi.u64 $d, $a, $b;", "ddd", (u64)((u128)a * b >> 64)) \
    _("mul.wide.s32 $d, $a, $b;", "dww", (u64)((s64)(s32)a * (s32)b)) \
    _("mul.wide.u32 $d, $a, $b;", "dww", (u64)(u32)a * (u32)b) \
    _("mul.wide.s16 $d, $a, $b;", "whh", (u32)((s32)(s16)a * (s16)b)) \
    _("mul.wide.u16 $d, $a, $b;", "whh", (u32)(u16)a * (u16)b) \
    _("mad.lo.s32 $d, $a, $b, $c;", "wwww", (u32)a * (u32)b + (u32)c) \
    _("mad.hi.s32 $d, $a, $b, $c;", "wwww", (u32)((u64)((s64)(s32)a * (s32)b) >> 32) + (u32)c) \
    _("mad.wide.s32 $d, $a, $b, $c;", "dwwd", (u64)((s64)(s32)a * (s32)b) + c) \
    _("mul24.lo.s32 $d, $a, $b;", "www", (u32)((s64)((s32)((u32)a << 8) / 256) * ((s32)((u32)b << 8) / 256))) \
    _("mul24.lo.u32 $d, $a, $b;", "www", (u32)((a & 0xFFFFFF) * (b & 0xFFFFFF))) \
    _("sad.s32 $d, $a, $b, $c;", "wwww", \
      (u32)c + (u32)((s32)a > (s32)b ? (s64)(s32)a - (s32)b : (s64)(s32)b - (s32)a)) \
    _("sad.u32 $d, $a, $b, $c;", "wwww", (u32)c + ((u32)a > (u32)b ? (u32)a - (u32)b : (u32)b - (u32)a)) \
    _("div.s32 $d, $a, $b;", "www", (u32)((u32)b == 0 ? UINT32_MAX : (u32)((s64)(s32)a / (s32)b))) \
    _("div.u64 $d, $a, $b;", "ddd", b == 0 ? UINT64_MAX : a / b) \
    _("div.s64 $d, $a, $b;", "ddd", b == 0 ? UINT64_MAX : (u64)((s128)(s64)a / (s64)b)) \
    _("rem.s32 $d, $a, $b;", "www", (u32)b == 0 ? (u32)a : (u32)((s64)(s32)a % (s32)b)) \
    _("rem.u32 $d, $a, $b;", "www", (u32)b == 0 ? (u32)a : (u32)a % (u32)b) \
    _("rem.s64 $d, $a, $b;", "ddd", b == 0 ? a : (u64)((s128)(s64)a % (s64)b)) \
    _("min.s32 $d, $a, $b;", "www", (u32)((s32)a < (s32)b ? a : b)) \
    _("max.u32 $d, $a, $b;", "www", (u32)a > (u32)b ? (u32)a : (u32)b) \
    _("min.s64 $d, $a, $b;", "ddd", (s64)a < (s64)b ? a : b) \
    _("max.s16 $d, $a, $b;", "hhh", (u16)((s16)a > (s16)b ? a : b)) \
    _("min.s16x2 $d, $a, $b;", "www", \
      (u16)((s16)a < (s16)b ? a : b) | (u32)(u16)((s16)(a >> 16) < (s16)(b >> 16) ? a >> 16 : b >> 16) << 16) \
    _("add.u16x2 $d, $a, $b;", "www", (u16)(a + b) | (u32)(u16)((a >> 16) + (b >> 16)) << 16) \
    _("neg.s32 $d, $a;", "ww", 0 - (u32)a) \
    _("abs.s32 $d, $a;", "ww", (s32)a < 0 ? 0 - (u32)a : (u32)a) \
    _("abs.s64 $d, $a;", "dd", (s64)a < 0 ? 0 - a : a) \
    _("and.b32 $d, $a, $b;", "www", (u32)(a & b)) \
    _("or.b64 $d, $a, $b;", "ddd", a | b) \
    _("xor.b16 $d, $a, $b;", "hhh", (u16)(a ^ b)) \
    _("not.b32 $d, $a;", "ww", (u32)~a) \
    _("cnot.b32 $d, $a;", "ww", (u32)a == 0) \
    _("shl.b32 $d, $a, $b;", "www", (u32)shifted_left((u32)a, (u32)b, 32)) \
    _("shl.b64 $d, $a, $b;", "ddw", shifted_left(a, (u32)b, 64)) \
    _("shl.b16 $d, $a, $b;", "hhw", (u16)shifted_left((u16)a, (u32)b, 16)) \
    _("shr.u32 $d, $a, $b;", "www", (u32)b > 31 ? 0 : (u32)a >> (u32)b) \
    _("shr.s32 $d, $a, $b;", "www", (u32)shifted_right((s32)a, (u32)b)) \
    _("shr.s64 $d, $a, $b;", "ddw", (u64)shifted_right((s64)a, (u32)b)) \
    _("shr.s16 $d, $a, $b;", "hhw", (u16)shifted_right((s16)a, (u32)b)) \
    _("shf.l.wrap.b32 $d, $a, $b, $c;", "wwww", (u32)((((u64)(u32)b << 32 | (u32)a) << (c & 31)) >> 32)) \
    _("shf.r.wrap.b32 $d, $a, $b, $c;", "wwww", (u32)(((u64)(u32)b << 32 | (u32)a) >> (c & 31))) \
    _("shf.l.clamp.b32 $d, $a, $b, $c;", "wwww", \
      (u32)c > 31 ? (u32)a : (u32)((((u64)(u32)b << 32 | (u32)a) << (u32)c) >> 32)) \
    _("shf.r.clamp.b32 $d, $a, $b, $c;", "wwww", (u32)c > 31 ? (u32)b : (u32)(((u64)(u32)b << 32 | (u32)a) >> (u32)c)) \
    _("popc.b32 $d, $a;", "ww", ones((u32)a)) \
    _("popc.b64 $d, $a;", "wd", ones(a)) \
    _("clz.b32 $d, $a;", "ww", leading((u32)a, 32)) \
    _("clz.b64 $d, $a;", "wd", leading(a, 64)) \
    _("brev.b32 $d, $a;", "ww", bits_reversed((u32)a)) \
    _("brev.b64 $d, $a;", "dd", (u64)bits_reversed((u32)a) << 32 | bits_reversed((u32)(a >> 32))) \
    _("bfind.u32 $d, $a;", "ww", (u32)a == 0 ? UINT32_MAX : 31 - leading((u32)a, 32)) \
    _("bfind.s32 $d, $a;", "ww", \
      (u32)a == 0 || (u32)a == UINT32_MAX ? UINT32_MAX : 31 - leading((u32)((s32)a < 0 ? ~a : a), 32)) \
    _("bfe.u32 $d, $a, $b, $c;", "wwww", (u32)extracted((u32)a, (u32)b, (u32)c, 32, false)) \
    _("bfe.s32 $d, $a, $b, $c;", "wwww", (u32)extracted((u32)a, (u32)b, (u32)c, 32, true)) \
    _("bfe.s64 $d, $a, $b, $c;", "ddww", (u64)extracted((s64)a, (u32)b, (u32)c, 64, true)) \
    _("bfi.b32 $d, $a, $b, $c, 9;", "wwww", (u32)inserted((u32)a, (u32)b, (u32)c, 9, 32)) \
    _("bfi.b64 $d, $a, $b, 5, $c;", "dddw", inserted(a, b, 5, (u32)c, 64)) \
    _("prmt.b32 $d, $a, $b, $c;", "wwww", byte_permuted((u32)a, (u32)b, (u32)c)) \
    _("lop3.b32 $d, $a, $b, $c, 0xCA;", "wwww", table3((u32)a, (u32)b, (u32)c, 0xCA)) \
    _("lop3.b32 $d, $a, $b, $c, 0x1E;", "wwww", table3((u32)a, (u32)b, (u32)c, 0x1E)) \
    _("dp4a.s32.u32 $d, $a, $b, $c;", "wwww", \
      (u32)c + (u32)((s8)a * (u8)b + (s8)(a >> 8) * (u8)(b >> 8) + (s8)(a >> 16) * (u8)(b >> 16) + \
                     (s8)(a >> 24) * (u8)(b >> 24))) \
    _("dp2a.hi.u32.s32 $d, $a, $b, $c;", "wwww", \
      (u32)c + (u32)((u16)a * (s8)(b >> 16) + (u16)(a >> 16) * (s8)(b >> 24))) \
    _("add.cc.u32 %r20, $a, $b; addc.u32 $d, $c, 0;", "wwww", (u32)c + ((u32)a + (u32)b < (u32)a)) \
    _("sub.cc.u64 %rd25, $a, $b; subc.u64 $d, $c, 0;", "dddd", c - (a < b)) \
    _("add.cc.u32 %r20, $a, $b; addc.cc.u32 %r21, $a, $c; addc.u32 $d, 0, 0;", "wwww", \
      ((u64)(u32)a + (u32)c + ((u32)a + (u32)b < (u32)a)) >> 32) \
    _("mad.lo.cc.u32 %r20, $a, $b, $c; madc.hi.u32 $d, $a, $b, 0;", "wwww", ((u64)(u32)a * (u32)b + (u32)c) >> 32) \
    _("mov.b32 {%h20, %h21}, $a; mov.b32 $d, {%h21, %h20};", "ww", (u32)a >> 16 | (u32)a << 16) \
    _("mov.b64 {%r20, %r21}, $a; mov.b64 $d, {%r21, %r20};", "dd", a >> 32 | a << 32) \
    _("mov.b64 {%h20, _, %h22, %h23}, $a; mov.b64 $d, {%h23, 7, %h22, %h20};", "dd", \
      (u16)(a >> 48) | 7u << 16 | (u64)(u16)(a >> 32) << 32 | (u64)(u16)a << 48) \
    _("cvt.u8.u32 $d, $a;", "ww", (u8)a) \
    _("cvt.s8.s32 $d, $a;", "ww", (u32)(s8)a) \
    _("cvt.s16.s64 $d, $a;", "wd", (u32)(s16)a) \
    _("cvt.s64.s8 $d, $a;", "dd", (u64)(s8)a) \
    _("cvt.sat.u8.s32 $d, $a;", "ww", (s32)a < 0 ? 0 : (s32)a > 255 ? 255 : (u32)a) \
    _("cvt.sat.s32.s64 $d, $a;", "wd", (u32)clamped((s64)a)) \
    _("cvt.sat.u32.s64 $d, $a;", "wd", (s64)a < 0 ? 0 : (s64)a > UINT32_MAX ? UINT32_MAX : (u32)a) \
    _("selp.b32 $d, $a, $b, $c;", "wwwp", c ? (u32)a : (u32)b) \
    _("slct.u32.s32 $d, $a, $b, $c;", "wwww", (s32)c >= 0 ? (u32)a : (u32)b) \
    _("setp.lt.s32 $d, $a, $b;", "pww", (s32)a < (s32)b) \
    _("setp.hi.u32 $d, $a, $b;", "pww", (u32)a > (u32)b) \
    _("setp.ge.s64 $d, $a, $b;", "pdd", (s64)a >= (s64)b) \
    _("setp.ne.s16 $d, $a, $b;", "phh", (u16)a != (u16)b) \
    _("setp.gt.s16 $d, $a, $b;", "phh", (s16)a > (s16)b) \
    _("setp.lt.and.u32 $d, $a, $b, $c;", "pwwp", (u32)a < (u32)b && c) \
    _("setp.lt.or.u32 $d|%p30, $a, $b, !$c;", "pwwp", (u32)a < (u32)b || !c) \
    _("setp.lt.xor.u32 %p30|$d, $a, $b, $c;", "pwwp", ((u32)a >= (u32)b) != (c != 0)) \
    _("setp.eq.u32 %p30|$d, $a, $b;", "pww", (u32)a != (u32)b) \
    _("set.gt.u32.s32 $d, $a, $b;", "www", (s32)a > (s32)b ? UINT32_MAX : 0) \
    _("setp.lt.u32 %p30, $a, $b; mov.u32 $d, 5; @%p30 mov.u32 $d, 6; @!%p30 add.u32 $d, $d, 2;", "www", \
      (u32)a < (u32)b ? 6 : 7) \
    _("not.pred $d, $a;", "pp", a == 0) \
    _("xor.pred $d, $a, $b;", "ppp", (a != 0) != (b != 0))

static const value_case integer_cases[] = { INTEGER_CASES(LINE) };
static u64 integer_want(int k, u64 a, u64 b, u64 c)
{
    INTEGER_CASES(WANT)
    return 0;
}

static void test_integers(void **state)
{
    (void)state;
    static const u64 some[] = { 0,
                                1,
                                2,
                                3,
                                5,
                                7,
                                8,
                                15,
                                16,
                                17,
                                31,
                                32,
                                33,
                                63,
                                64,
                                65,
                                100,
                                127,
                                128,
                                255,
                                256,
                                32767,
                                32768,
                                65535,
                                65536,
                                0x7FFFFFFF,
                                0x80000000,
                                0x80000001,
                                0xFFFFFFFF,
                                0x100000000,
                                0x0123456789ABCDEF,
                                0x7FFFFFFFFFFFFFFF,
                                0x8000000000000000,
                                0xFFFFFFFFFFFFFFFF,
                                0xFFFFFFFFFFFFFFFE,
                                0xFEDCBA9876543210 };
    memcpy(edges, some, sizeof some);
    n_edges = COUNT(some);
    check_all(integer_cases, COUNT(integer_cases), integer_want);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_integers) };
    setenv("FAKECUDA_NO_AVX2", "1", 1); /* with the code for any CPU, then with that for this one */
    const int plain = cmocka_run_group_tests_name("any CPU", tests, NULL, NULL);
    unsetenv("FAKECUDA_NO_AVX2");
    return plain + cmocka_run_group_tests_name("this CPU", tests, NULL, NULL);
}
