### operators
echo $((5>3)) $((5<3)) $((5==5)) $((5!=5)) $((1&&0)) $((1||0)) $((!1)) $((~5))
### bits
echo $((6&3)) $((6|3)) $((6^3)) $((1<<4)) $((256>>2))
### bases
echo $((0x1f)) $((017)) $((2#1010)) $((16#ff)) $((36#z))
### assignment operators
x=5; ((x+=3)); echo $x; ((x*=2)); echo $x; ((x%=5)); echo $x; ((x<<=2)); echo $x
### increment
i=1; echo $((i++)) $i $((++i)) $((i--)) $((--i))
### ternary and comma
echo $((3>2?10:20)) $((a=1,b=2,a+b))
### status of double parens
((1)); echo $?; ((0)); echo $?; ((5>7)) || echo no
### let
let a=3*4 b=a+1; echo $a $b
### precedence
echo $((2+3*4**2)) $((-2**2)) $((10-3-2)) $((2**3**2))
### division by zero
(echo $((1/0))) 2>/dev/null; echo $?
### big numbers wrap
echo $((9223372036854775807+1))
### variables without dollar
x=4; y=x; echo $((x*2)) $((y+1))
### c style loop
for ((i=0;i<5;i++)); do ((i==3)) && continue; printf '%d ' $i; done; echo
### nested loops with sums
s=0; for ((i=1;i<=10;i++)); do for ((j=1;j<=10;j++)); do ((s+=i*j)); done; done; echo $s
### bc
echo "scale=4; 10/3" | bc; echo "2^64" | bc; echo "5*(3+2)" | bc
### expr
expr 3 + 4; expr 10 / 3; expr abc : 'a\(.\)c'; expr length hello
### string in arithmetic
x="1+2"; echo $((x*3))
### fibonacci
a=0 b=1; for i in {1..20}; do t=$((a+b)); a=$b; b=$t; done; echo $a
### primes
for ((n=2;n<50;n++)); do p=1; for ((d=2;d*d<=n;d++)); do ((n%d==0)) && { p=0; break; }; done; ((p)) && printf '%d ' $n; done; echo
