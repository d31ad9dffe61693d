#!/bin/sh
# Stands for a real encoder, such as ffmpeg. Every output is written whole or not at all.
#   encode.sh part FILM NUMBER     encode one part: FILM.NUMBER.part
#   encode.sh join FILM PARTS      put the parts together: FILM.mp4
#   encode.sh thumbnail FILM       make a picture: FILM.jpg
set -eu
film=$2
case $1 in
part)
    echo "encoding part $3 of $film"
    sleep "${ENCODE_SECONDS:-0.2}"
    echo "part $3" > "$film.$3.tmp"
    mv "$film.$3.tmp" "$film.$3.part"
    ;;
join)
    number=0
    while [ "$number" -lt "$3" ]; do
        cat "$film.$number.part"
        number=$((number + 1))
    done > "$film.mp4.tmp"
    mv "$film.mp4.tmp" "$film.mp4"
    echo "joined $3 parts of $film"
    ;;
thumbnail)
    echo "a picture of $film" > "$film.jpg.tmp"
    mv "$film.jpg.tmp" "$film.jpg"
    ;;
esac
