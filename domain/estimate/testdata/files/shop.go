// Package shop sells tea.
package shop

import "fmt"

// Tea is a kind of tea.
type Tea struct {
	Name  string
	Price int
}

// Brew brews tea.
func (t Tea) Brew() string {
	return fmt.Sprintf("%s is ready", t.Name)
}

func price(teas []Tea) int {
	sum := 0
	for _, t := range teas {
		sum += t.Price
	}
	return sum
}

// filler makes the file long enough to be cut.
var filler = []string{
	"line 00 of the list of teas that the shop has on its shelves",
	"line 01 of the list of teas that the shop has on its shelves",
	"line 02 of the list of teas that the shop has on its shelves",
	"line 03 of the list of teas that the shop has on its shelves",
	"line 04 of the list of teas that the shop has on its shelves",
	"line 05 of the list of teas that the shop has on its shelves",
	"line 06 of the list of teas that the shop has on its shelves",
	"line 07 of the list of teas that the shop has on its shelves",
	"line 08 of the list of teas that the shop has on its shelves",
	"line 09 of the list of teas that the shop has on its shelves",
	"line 10 of the list of teas that the shop has on its shelves",
	"line 11 of the list of teas that the shop has on its shelves",
	"line 12 of the list of teas that the shop has on its shelves",
	"line 13 of the list of teas that the shop has on its shelves",
	"line 14 of the list of teas that the shop has on its shelves",
	"line 15 of the list of teas that the shop has on its shelves",
	"line 16 of the list of teas that the shop has on its shelves",
	"line 17 of the list of teas that the shop has on its shelves",
	"line 18 of the list of teas that the shop has on its shelves",
	"line 19 of the list of teas that the shop has on its shelves",
}
