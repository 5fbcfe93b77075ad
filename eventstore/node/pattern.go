package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlclark/regexp2"
	"github.com/dlclark/regexp2/syntax"
)

const (
	// maxExpression is the most bytes of the expression of a filter. Official clients join all the
	// names that they want in one.
	maxExpression = 16 << 10
	// matchTime is how long the comparison of one name with an expression may take. The engine
	// reads its clock every tenth of a second, so a match ends after at most three times that. It
	// does not read the clock before a thousand steps. A usual match ends earlier, so a busy
	// machine fails none.
	matchTime = 100 * time.Millisecond
)

// pattern is a regular expression by the rules of .NET, which the server uses. Official clients
// exclude events by lookahead, which Go's own engine does not support. Such an engine backtracks,
// for hours with a malicious expression, so each match has a time limit.
type pattern struct {
	compiled *regexp2.Regexp
	limit    time.Duration
}

// newPattern compiles an expression. The error is for the client.
func newPattern(text string) (*pattern, error) {
	if len(text) > maxExpression {
		return nil, errInvalid(fmt.Sprintf(
			"the expression of a filter has %d bytes: at most %d are taken", len(text), maxExpression))
	}
	p := &pattern{limit: matchTime}
	err := recovered(func() (err error) {
		p.compiled, err = regexp2.Compile(text, regexp2.None)
		return err
	})
	var wrong *syntax.Error
	switch {
	case errors.As(err, &wrong): // its text repeats the expression, which may be too long for an answer
		return nil, errInvalid(fmt.Sprintf("the expression of a filter is not understood: %s", wrong.Code))
	case err != nil:
		return nil, errInvalid("the expression of a filter is not understood")
	}
	p.compiled.MatchTimeout = p.limit
	return p, nil
}

// matches reports whether a name matches the expression. A match that takes too long is an error
// for the client.
func (p *pattern) matches(ctx context.Context, name []byte) (found bool, err error) {
	// End a series of slow matches together with its call.
	if err := ctx.Err(); err != nil {
		return false, err
	}
	err = recovered(func() (err error) {
		found, err = p.compiled.MatchString(string(name))
		return err
	})
	if errors.Is(err, errEngine) {
		return false, errInvalid("the expression of a filter cannot be evaluated: write it in another way")
	}
	if err != nil { // its text contains the name
		return false, errInvalid(fmt.Sprintf(
			"the expression of a filter was compared with one name for more than %v: simplify it", p.limit))
	}
	return found, nil
}

var errEngine = errors.New("the engine of expressions panicked")

// recovered turns a panic of the engine into an error, because the expression comes from a client.
func recovered(run func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errEngine, r)
		}
	}()
	return run()
}
