package e2e

import (
	"math/rand/v2"
	"sync"
)

// pools are the names that a caller has used or was given, newest last, each list bounded.
type pools struct {
	mu sync.Mutex
	of map[string][]string
}

const poolSize = 40

// add keeps a name, and drops the oldest where there are too many.
func (p *pools) add(kind, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string][]string{}
	}
	if list := p.of[kind]; len(list) >= poolSize {
		p.of[kind] = list[1:]
	}
	p.of[kind] = append(p.of[kind], name)
}

// some is one of the names, "" for none.
func (p *pools) some(rng *rand.Rand, kind string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.of[kind]
	if len(list) == 0 {
		return ""
	}
	return list[rng.IntN(len(list))]
}

// drop takes the oldest names out, all but so many.
func (p *pools) drop(kind string, left int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.of[kind]
	if len(list) <= left {
		return nil
	}
	old := list[:len(list)-left]
	p.of[kind] = append([]string(nil), list[len(list)-left:]...)
	return old
}
