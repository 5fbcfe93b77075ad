package recall

import "sync"

// mostKept is how many readings are kept: of more texts than two pages of projections have, a few megabytes.
const mostKept = 2048

// keptReadings keeps readings of short texts for the next who reads the same text, since one projection of a process
// notes what a text states, and another indexes it. It is safe for concurrent use.
type keptReadings struct {
	mu sync.Mutex
	of map[string]*reading
	// texts is a ring of the texts that were kept last, at the oldest of them.
	texts [mostKept]string
	at    int
}

// keep keeps a reading instead of its release.
func (k *keptReadings) keep(text string, p *reading) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = make(map[string]*reading, mostKept)
	}
	if k.of[text] != nil {
		p.release()
		return
	}
	if oldest := k.of[k.texts[k.at]]; oldest != nil {
		delete(k.of, k.texts[k.at])
		oldest.release()
	}
	k.of[text], k.texts[k.at] = p, text
	k.at = (k.at + 1) % mostKept
}

// take returns the reading of a text, which is the caller's from now on, nil if none is kept.
func (k *keptReadings) take(text string) *reading {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.of[text]
	delete(k.of, text)
	return p
}
