### whole numbers without end
import math
print(2 ** 200, math.factorial(30), -7 // 2, -7 % 2, divmod(17, -5), pow(3, 200, 1009))
print(int("ff", 16), int("0b101", 0), (255).to_bytes(2, "big"), int.from_bytes(b"\x01\x00", "little"))
print((10 ** 50).bit_length(), bin(37), hex(255), oct(8), (37).bit_count())
print(math.gcd(84, 36), math.lcm(4, 6), math.isqrt(10 ** 20), math.comb(10, 3), math.perm(5, 2))
### floating point
import math
print(0.1 + 0.2, 1e308 * 10, -1 / 3, 7.0, 1e16, 1.5e-7, float("nan") == float("nan"))
print(round(2.5), round(3.5), round(2.675, 2), round(1234.5, -2), math.floor(-1.5), math.trunc(-1.5))
print((0.1).as_integer_ratio(), (3.5).hex(), float.fromhex("0x1.8p1"), math.fsum([0.1] * 10))
print(math.isclose(0.1 + 0.2, 0.3), math.hypot(3, 4), math.degrees(math.pi), math.log2(8), math.ulp(1.0))
print(math.sin(1), math.exp(1), math.sqrt(2), math.atan2(1, -1), math.tanh(0.5))
### decimals
from decimal import Decimal, getcontext, ROUND_HALF_UP, ROUND_DOWN, localcontext, InvalidOperation
print(Decimal("0.1") + Decimal("0.2"), Decimal(1) / Decimal(7))
with localcontext() as context:
    context.prec = 50
    print(Decimal(2).sqrt(), Decimal(1).exp())
print(Decimal("2.675").quantize(Decimal("0.01"), ROUND_HALF_UP), Decimal("-2.679").quantize(Decimal("0.01"), ROUND_DOWN))
try:
    Decimal("abc")
except InvalidOperation as error:
    print("invalid")
print(sum(map(Decimal, ["1.10", "2.20"])), Decimal("1E+3").normalize(), Decimal("123.456").as_tuple())
### fractions
from fractions import Fraction
print(Fraction(1, 3) + Fraction(1, 6), Fraction("0.125"), Fraction(3.5), Fraction(22, 7).limit_denominator(5))
print(Fraction(7, 2) // 1, float(Fraction(1, 8)), Fraction(-6, 4), abs(Fraction(-1, 2)) ** 3)
### statistics
import statistics as st
data = [2, 4, 4, 4, 5, 5, 7, 9]
print(st.mean(data), st.median(data), st.mode(data), st.pstdev(data), st.variance(data), st.quantiles(data, n=4))
print(st.fmean([1, 2, 3.5]), st.geometric_mean([1, 4, 16]), st.harmonic_mean([40, 60]), st.multimode("aabbc"))
print(st.correlation([1, 2, 3], [2, 4, 6.5]), st.linear_regression([1, 2, 3], [2, 4, 6]))
### random with a seed
import random
r = random.Random(42)
print([r.randint(1, 100) for _ in range(8)], r.random(), r.choice("abcdef"), r.sample(range(50), 5))
items = list(range(10)); r.shuffle(items); print(items)
random.seed("text"); print(random.random(), random.gauss(0, 1), random.choices("ab", [1, 9], k=5))
### complex numbers
import cmath
z = 3 + 4j
print(abs(z), z.conjugate(), z * 1j, cmath.polar(1j), cmath.sqrt(-1), complex("1+2j"), (1 + 1j) ** 3)
### struct packing
import struct
packed = struct.pack("<IhB?5sd", 1, -2, 255, True, b"abc", 1.5)
print(packed.hex(), struct.calcsize("<IhB?5sd"), struct.unpack("<IhB?5sd", packed))
print(list(struct.iter_unpack(">H", b"\x00\x01\x00\x02")), struct.pack(">q", -1), struct.pack("!e", 1.0))
try:
    struct.pack("<B", 256)
except struct.error:
    print("out of range")
### arrays and memory views
import array
a = array.array("i", [1, 2, 3]); a.append(4); a.extend([5]); print(a, a.itemsize, sum(a))
b = bytearray(b"hello"); m = memoryview(b); m[1:3] = b"EY"; print(b, m[::2].tobytes(), m.cast("B").tolist())
b[1:1] = b"--"[:0]; m.release(); b += b"!"; print(b, b.find(b"o"), bytes(b).split(b"l"))
### hashes
import hashlib, hmac
for name in ["md5", "sha1", "sha256", "sha512", "sha3_256", "blake2b"]:
    print(name, hashlib.new(name, b"hello").hexdigest()[:32])
h = hashlib.sha256(); h.update(b"a"); h.update(b"b"); print(h.hexdigest() == hashlib.sha256(b"ab").hexdigest())
print(hmac.new(b"key", b"msg", "sha256").hexdigest(), hmac.compare_digest("a", "a"))
### keys from passwords
import hashlib
print(hashlib.pbkdf2_hmac("sha256", b"pw", b"salt", 100).hex())
### bits and masks
flags = 0b1010
print(flags & 2, flags | 1, flags ^ 0xF, ~flags, flags << 3, flags >> 1, bool(flags & 4))
print(sum(1 << i for i in range(0, 64, 7)), f"{0xDEADBEEF:032b}", -1 & 0xFFFFFFFFFFFFFFFF)
### primes by a sieve
def primes(n):
    sieve = bytearray([1]) * (n + 1)
    sieve[:2] = b"\0\0"
    for i in range(2, int(n ** 0.5) + 1):
        if sieve[i]:
            sieve[i * i::i] = bytes(len(range(i * i, n + 1, i)))
    return [i for i, p in enumerate(sieve) if p]
p = primes(20000)
print(len(p), p[-3:], sum(p))
