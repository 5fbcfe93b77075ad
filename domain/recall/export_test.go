package recall

// Kept returns how many readings the analyzer keeps.
func (a *Analyzer) Kept() int { return len(a.kept.of) }
