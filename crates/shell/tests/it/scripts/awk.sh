### fields
echo "a b c" | awk '{print $2, $NF, NF}'
### separator
echo a:b:c | awk -F: '{print $3}'; echo "a,b;c" | awk -F'[,;]' '{print $2 $3}'
### begin and end
seq 5 | awk 'BEGIN{s=0} {s+=$1} END{print s, NR, s/NR}'
### patterns
seq 10 | awk '$1%3==0'; printf 'ab\ncd\n' | awk '/c/{print "hit", $0}'
### ranges
seq 6 | awk '/2/,/4/'
### arrays
printf 'a 1\nb 2\na 3\n' | awk '{t[$1]+=$2} END{for(k in t) print k, t[k]}' | sort
### printf
echo "3.14159 x" | awk '{printf "%.2f|%5s|%-5s|%03d\n", $1, $2, $2, 7}'
### string functions
echo "hello world" | awk '{print length($0), toupper($1), substr($2,2,3), index($0,"wor")}'
### sub and gsub
echo "aaa" | awk '{sub(/a/,"b"); print; gsub(/a/,"c"); print; n=gsub(/c/,"d"); print n}'
### split
echo "a-b-c" | awk '{n=split($0,p,"-"); print n, p[1], p[3]}'
### match
echo "foo123bar" | awk 'match($0,/[0-9]+/){print RSTART, RLENGTH, substr($0,RSTART,RLENGTH)}'
### control flow
awk 'BEGIN{for(i=0;i<5;i++){if(i==1)continue;if(i==4)break;print i} while(j<2){j++} print j}'
### functions
awk 'function f(x,  y){y=x*2;return y} BEGIN{print f(21)}'
### variables from outside
awk -v n=5 -v s="a b" 'BEGIN{print n*2, s}'
### output separator
echo "a b c" | awk 'BEGIN{OFS="-"}{$1=$1;print}'
### record separator
printf 'a;b;c' | awk 'BEGIN{RS=";"}{print NR": "$0}'
### two files
printf '1 a\n' > x; printf '1 b\n' > y; awk 'NR==FNR{m[$1]=$2;next}{print $0, m[$1]}' x y
### filename and fnr
echo a > x; echo b > y; awk '{print FILENAME, FNR, NR}' x y
### assignment to fields
echo "1 2 3" | awk '{$2=$1+$3; print; print NF}'
### ternary and concat
echo 5 | awk '{x = $1>3 ? "big" : "small"; print x "-" $1}'
### delete and in
awk 'BEGIN{a["x"]=1;a["y"]=2;delete a["x"]; print ("x" in a), ("y" in a), length(a)}'
### multiple rules
seq 3 | awk '{print "a" $1} $1==2{print "two"}'
### comparison of strings
printf '10\n9\n' | awk '$1>"9"'; printf '10\n9\n' | awk '$1>9'
### math
awk 'BEGIN{print int(3.9), sqrt(16), 2^10, 7%3, -7%3, 1/4, 1e3}'
### csv sum
printf 'n,v\na,1\nb,2\n' | awk -F, 'NR>1{s+=$2}END{print s}'
### print to a file
seq 3 | awk '{print > "out" $1}'; cat out2; ls
### exit status
awk 'BEGIN{exit 3}'; echo $?
### getline
printf 'a\nb\n' > f; awk 'BEGIN{while((getline l < "f")>0) print "l:" l}'
### field loop
echo "3 1 2" | awk '{for(i=NF;i>0;i--) printf "%s ", $i; print ""}'
### regex operators
printf 'foo\nbar\n' | awk '$0 ~ /^f/ {print "m"} $0 !~ /^f/ {print "n"}'
### program in a file
echo '{print $1+1}' > p.awk; echo 4 | awk -f p.awk
### tolower and sprintf
awk 'BEGIN{s=sprintf("%s-%d-%x","A",10,255); print tolower(s)}'
