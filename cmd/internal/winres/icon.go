package main

import (
	"image"
	"image/color"
	"math"
)

// iconSizes are those that Windows shows: from the title bar to Explorer's large icons.
var iconSizes = []int{256, 64, 48, 32, 24, 16}

var (
	ground = color.NRGBA{R: 0x1f, G: 0x3a, B: 0x5f, A: 0xff}
	letter = color.NRGBA{R: 0xff, G: 0xd1, B: 0x66, A: 0xff}
)

// drawIcon draws the letter m on a square with round corners, n pixels wide.
func drawIcon(n int) image.Image {
	const fine = 8 // samples of a pixel in each direction
	picture := image.NewNRGBA(image.Rect(0, 0, n, n))
	for y := range n {
		for x := range n {
			inSquare, inLetter := 0, 0
			for i := range fine * fine {
				u := (float64(x) + (float64(i%fine)+0.5)/fine) / float64(n)
				v := (float64(y) + (float64(i/fine)+0.5)/fine) / float64(n)
				if square(u, v) {
					inSquare++
					if isM(u, v) {
						inLetter++
					}
				}
			}
			if inSquare == 0 {
				continue
			}
			mix := func(a, b uint8) uint8 { return uint8((int(a)*(inSquare-inLetter) + int(b)*inLetter) / inSquare) }
			picture.SetNRGBA(x, y, color.NRGBA{
				R: mix(ground.R, letter.R), G: mix(ground.G, letter.G), B: mix(ground.B, letter.B),
				A: uint8(255 * inSquare / (fine * fine)),
			})
		}
	}
	return picture
}

// square reports whether a point of the unit square lies in the icon.
func square(u, v float64) bool {
	const margin, radius = 0.03, 0.2
	outside := func(t float64) float64 { return max(0, math.Abs(t-0.5)-(0.5-margin-radius)) }
	return math.Hypot(outside(u), outside(v)) <= radius
}

// isM reports whether a point lies on the m: three stems under two half rings.
func isM(u, v float64) bool {
	const left, gap, top, bottom, half = 0.25, 0.25, 0.42, 0.74, 0.055
	for i := range 3 {
		if math.Abs(u-left-gap*float64(i)) <= half && v >= top && v <= bottom {
			return true
		}
	}
	for i := range 2 {
		fromRing := math.Hypot(u-left-gap*(float64(i)+0.5), v-top) - gap/2
		if v < top && math.Abs(fromRing) <= half {
			return true
		}
	}
	return math.Abs(u-left) <= half && v >= top-gap/2-half && v <= bottom
}
