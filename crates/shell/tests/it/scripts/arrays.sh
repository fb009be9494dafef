### literal
a=(x y "z w"); echo ${a[0]} "${a[2]}" ${#a[@]}; printf '<%s>' "${a[@]}"; echo
### append
a=(1); a+=(2 3); a[5]=six; echo "${a[@]}" "${!a[@]}" ${#a[@]}
### unset element
a=(a b c); unset 'a[1]'; echo "${a[@]}" "${!a[@]}"
### negative index
a=(1 2 3); echo ${a[-1]} ${a[-2]}
### associative
declare -A m=([one]=1 [two]=2); m[three]=3; for k in $(printf '%s\n' "${!m[@]}" | sort); do echo $k=${m[$k]}; done; echo ${#m[@]}
### associative with spaces
declare -A m; m["a b"]="c d"; echo "${m["a b"]}"; [[ -v m["a b"] ]] && echo has
### mapfile
printf 'l1\nl2\nl3\n' > f; mapfile -t a < f; echo ${#a[@]} "${a[1]}"
### read array
read -r -a a <<< "p q r"; echo ${a[2]} ${#a[@]}
### loops over indexes
a=(a b c); for i in "${!a[@]}"; do echo $i ${a[i]}; done
### replace in all
a=(foo bar boo); echo "${a[@]/o/0}" "${a[@]//o/0}" "${a[@]#f}"
### pass array
f() { local -a b=("$@"); echo "${#b[@]}:${b[*]}"; }; a=(1 "2 3" 4); f "${a[@]}"
### slice copy
a=(0 1 2 3 4); b=("${a[@]:1:3}"); echo "${b[@]}"
### arithmetic index
a=(5 6 7); i=1; echo ${a[i+1]} ${a[$i]} $((a[0]+a[1]))
### join
a=(x y z); (IFS=,; echo "${a[*]}")
### array from command
a=($(echo 3 1 2 | tr ' ' '\n' | sort)); echo ${a[0]} ${a[2]}
### array from glob
touch b.txt a.txt c.md; a=(*.txt); echo "${a[@]}" ${#a[@]}
### declare p
a=(1 "b c"); declare -p a; x=5; declare -p x; declare -i n=3; declare -p n
### empty array
a=(); echo ${#a[@]} "[${a[@]}]"; for x in "${a[@]}"; do echo never; done
### stack and queue
s=(); s+=(1); s+=(2); echo ${s[-1]}; unset 's[-1]'; echo ${#s[@]}; q=(a b c); q=("${q[@]:1}"); echo ${q[@]}
### integer attribute
declare -i n; n=3+4; echo $n; n+=5; echo $n
### two dimensional trick
declare -A g; for i in 0 1; do for j in 0 1; do g[$i,$j]=$((i*2+j)); done; done; echo ${g[1,0]} ${g[1,1]}
### printf v into array
printf -v a[2] '%03d' 7; echo ${a[2]} ${#a[@]}
