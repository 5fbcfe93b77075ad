package web

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Instance distinguishes one deployment from another, such as staging from production. Both may be empty.
type Instance struct{ Name, Colour string }

// maxInstance is the most characters of the name of an instance, which has one line of a phone.
const maxInstance = 40

// colours are those that app.css has.
var colours = []string{"", "red", "amber", "green", "blue"}

// Check returns why an instance cannot be shown, and which of NAME and COLOUR is wrong.
func (i Instance) Check() (setting string, err error) {
	switch {
	case !slices.Contains(colours, i.Colour):
		return "COLOUR", fmt.Errorf("is %q: want red, amber, green or blue", i.Colour)
	case i.Colour != "" && i.Name == "":
		return "NAME", fmt.Errorf("is not set, but ANNALS_INSTANCE_COLOUR is: there is no name to colour")
	case utf8.RuneCountInString(i.Name) > maxInstance, !utf8.ValidString(i.Name),
		strings.ContainsFunc(i.Name, unicode.IsControl):
		return "NAME", fmt.Errorf("is %q: want one line of at most %d characters", i.Name, maxInstance)
	}
	return "", nil
}
