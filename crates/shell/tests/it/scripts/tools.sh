### jq basics
echo '{"a":1,"b":[1,2,3]}' | jq .a; echo '{"a":1,"b":[1,2,3]}' | jq -c .b; echo '{"a":"x"}' | jq -r .a
### jq filters
echo '[{"n":"a","v":1},{"n":"b","v":2}]' | jq -r '.[] | select(.v>1) | .n'; echo '[3,1,2]' | jq -c 'sort'; echo '[1,2,3]' | jq 'add, length'
### jq construct
echo '{"x":{"y":5}}' | jq -c '{z: .x.y, w: (.x.y*2)}'; jq -nc '[range(3)]'; jq -n --arg a b '$a'
### jq map and keys
echo '{"b":1,"a":2}' | jq -c 'keys, map_values(.+1), to_entries'
### jq raw and slurp
printf '1\n2\n' | jq -s -c .; printf 'a\nb\n' | jq -R -c .; echo '{"a":null}' | jq -e .a; echo $?
### jq strings
echo '"a,b"' | jq -c 'split(",")'; echo '["x","y"]' | jq -r 'join("-")'; echo '"abc"' | jq 'test("b")'
### jq pretty
echo '{"a":[1,{"b":2}],"c":{}}' | jq .
### jq edit
echo '{"a":1}' | jq -c '.b=2 | del(.a)'; echo '{"a":[1]}' | jq -c '.a += [2]'
### jq errors
echo 'not json' | jq . 2>/dev/null; test $? -ne 0 && echo failed
### jq group
echo '[{"k":"a","v":1},{"k":"b","v":2},{"k":"a","v":3}]' | jq -c 'group_by(.k) | map({k: .[0].k, s: map(.v)|add})'
### tar round trip
mkdir -p d/e; echo a > d/f; echo b > d/e/g; tar cf t.tar d; rm -r d; tar xf t.tar; find d -type f | sort | xargs cat; rm t.tar
### tar list
mkdir d; touch d/a d/b; tar cf t.tar d; tar tf t.tar | sort; rm t.tar
### tar gz
mkdir d; echo x > d/f; tar czf t.tgz d; mkdir o; tar xzf t.tgz -C o; cat o/d/f; rm t.tgz
### tar one member
mkdir d; echo 1 > d/a; echo 2 > d/b; tar cf t.tar d; rm -r d; tar xf t.tar d/b; find d -type f; rm t.tar
### tar keeps modes
mkdir d; echo x > d/f; chmod 751 d/f; tar cf t.tar d; rm -r d; tar xf t.tar; stat -c %a d/f; rm t.tar
### tar strip and stdout
mkdir -p a/b; echo x > a/b/f; tar cf t.tar a; tar xf t.tar --strip-components=2; cat f; tar xOf t.tar a/b/f; rm t.tar
### gzip
echo data > f; gzip f; ls; gunzip f.gz; cat f; echo p | gzip -c | gunzip -c; echo z | gzip | zcat
### zip
mkdir d; echo x > d/f; zip -qr t.zip d; rm -r d; unzip -q t.zip; cat d/f; rm t.zip
### diff
printf 'a\nb\nc\n' > x; printf 'a\nB\nc\n' > y; diff x y; echo $?; diff x x; echo $?; diff -q x y
### diff unified
printf 'a\nb\nc\nd\n' > x; printf 'a\nc\nd\ne\n' > y; diff -u x y | tail -n +3
### diff recursive
mkdir p q; echo 1 > p/a; echo 2 > q/a; echo 3 > p/only; diff -rq p q | sort; diff -r p p; echo $?
### patch
printf 'a\nb\nc\n' > f; printf 'a\nB\nc\n' > g; diff -u f g > p; patch -s f < p; cat f; rm p
### patch with strip
mkdir s; printf 'one\ntwo\n' > s/f; printf -- '--- a/s/f\n+++ b/s/f\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n' > p; patch -s -p1 < p; cat s/f
### patch reverse
printf 'a\nb\n' > f; printf 'a\nc\n' > g; diff -u f g > p; patch -s f < p; patch -s -R f < p; cat f; rm p
### date
date -u -d '2024-02-29 12:34:56' '+%Y-%m-%d %H:%M:%S %j %a %b'; date -u -d @0 +%FT%TZ; date -u -d '2024-01-31 + 1 day' +%F
### date arithmetic
date -u -d '2024-03-01 - 1 day' +%F; date -u -d '2024-01-01 12:00 UTC + 2 hours' +%H:%M; date -u -d '1 Jan 2023' +%s
### printf forms
printf '%d %i %u\n' 5 -3 7; printf '%x %X %o %#x\n' 255 255 8 255; printf '%5d|%-5d|%05d|%+d\n' 42 42 42 42
### printf strings
printf '%s|%10s|%-10s|%.2s\n' a b c def; printf '%c%c\n' hello world; printf '%%\n'; printf '%b\n' 'a\tb'
### printf floats
printf '%.2f %5.1f %e %g\n' 3.14159 2.5 12345.678 0.0001
### printf rounds a half
printf '%.1f\n' 2.55
### printf escapes
printf 'a\tb\\n\x41\101\n'; printf '%s\n' a b c; printf '\n'
### printf to variable
printf -v x '%04d' 7; echo $x; printf '%(%Y)T\n' 0
### printf star width
printf '%*d|%-*s|\n' 6 42 5 ab
### column
printf 'a b\nccc d\n' | column -t
### numfmt
numfmt --to=iec 2048; numfmt --from=iec 1K
### sleep and time
sleep 0.01; echo slept
### id of nobody special
echo ${USER:-none} > /dev/null; echo ok
### which and type
type -t cd; type -t if; command -v cd; type nosuch 2>/dev/null; echo $?
### alias
shopt -s expand_aliases
alias hi='echo hello'
hi there
unalias hi; alias hi 2>/dev/null; echo $?
### history of options
set -o | grep -E '^(errexit|nounset)'; set -eu; set -o | grep -E '^(errexit|nounset)'
### hash and times
hash -r; echo $?
### strings
printf 'ab\0hello\0x\n' > f; strings f
### cksum and sum
printf abc | cksum
### tee and process substitution
echo x | tee >(cat > f) > /dev/null; sleep 0.05; cat f
### long pipeline of text tools
printf 'b,2\na,1\nc,3\n' | sort -t, -k1 | awk -F, '{print $2","$1}' | sed 's/,/ /' | while read -r n l; do echo "$l=$n"; done | paste -sd' '
### word frequency
echo "the cat the dog the end" | tr ' ' '\n' | sort | uniq -c | sort -k1nr -k2 | awk '{print $2":"$1}' | head -3
### generate and check a config
cat > c.ini <<END
[a]
x=1
[b]
x=2
END
awk -F= '/^\[/{s=$0} /^x/{print s, $2}' c.ini
### rename many
for i in 1 2 3; do touch f$i.txt; done; for f in *.txt; do mv "$f" "${f%.txt}.md"; done; ls
### batch edit
for i in 1 2 3; do echo "v=$i" > c$i; done; grep -l 'v=[12]' c* | xargs sed -i 's/v=/w=/'; cat c*
### csv to json lines
printf 'id,n\n1,a\n2,b\n' | tail -n +2 | while IFS=, read -r i n; do jq -nc --arg i "$i" --arg n "$n" '{i:$i,n:$n}'; done
### log analysis
printf '%s\n' 'ERR a' 'OK b' 'ERR c' 'ERR a' > log; grep ERR log | cut -d' ' -f2 | sort | uniq -c | sort -rn | awk '{print $1,$2}'
### patch from a file
printf 'a\nb\n' > f; printf -- '--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n' > p; patch -s -i p; cat f
### diff recursive with contents
mkdir p q; printf '1\n2\n' > p/a; printf '1\n3\n' > q/a; diff -r p q; echo $?
