package hostiletest

import (
	"math/rand/v2"
	"sync"
)

// Caller is a tenant with what it has made.
type Caller struct {
	// Key is that of its project, Management that of its organization, Token that of a webhook.
	Key, Management, Slug, Token string
	Organization                 int
	// Marker is in everything that the caller stores, and may be in no answer to another one.
	Marker string
	Names
}

// Names are those that a caller has used or was given, by their kinds, newest last, each list bounded.
type Names struct {
	mu sync.Mutex
	of map[string][]string
}

const keptNames = 40

// Add keeps a name, and drops the oldest where there are too many.
func (p *Names) Add(kind, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string][]string{}
	}
	if list := p.of[kind]; len(list) >= keptNames {
		p.of[kind] = list[1:]
	}
	p.of[kind] = append(p.of[kind], name)
}

// Some is one of the names, "" for none.
func (p *Names) Some(rng *rand.Rand, kind string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.of[kind]
	if len(list) == 0 {
		return ""
	}
	return list[rng.IntN(len(list))]
}

// Drop takes the oldest names out, all but so many.
func (p *Names) Drop(kind string, left int) []string {
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
