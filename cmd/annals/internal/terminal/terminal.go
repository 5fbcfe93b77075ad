// Package terminal asks the person who runs a command, and shows that person the progress of long work.
package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Streams are where a command asks and shows progress: standard input and standard error.
type Streams struct {
	In  io.Reader
	Out io.Writer
}

// ErrNone is returned by Ask if the input is no terminal.
var ErrNone = errors.New("there is no terminal to ask on")

// Ask asks a question whose answer is yes or no, which is the default.
func (s Streams) Ask(question string) (yes bool, err error) {
	if !Is(s.In) {
		return false, ErrNone
	}
	_, _ = fmt.Fprint(s.Out, question+" [y/N] ")
	answer, err := bufio.NewReader(s.In).ReadString('\n')
	if err != nil && answer == "" { // such as the null device
		_, _ = fmt.Fprintln(s.Out)
		return false, ErrNone
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// Is reports whether an input or an output is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
