package rawjson

import "unicode/utf8"

// Step is one step of a path into JSON: a member of an object, or an element of an array.
type Step struct {
	Name string
	// Index is that of the element, negative for a member.
	Index int
}

// Paths are paths into a text, all of which one pass over it follows. It must not change once it is used.
type Paths struct {
	root node
	// targets and watches count what Found holds.
	targets, watches int
	// longest is the most bytes of a name or text that is compared.
	longest int
}

// node is where paths lead that have their first steps in common.
type node struct {
	members  map[string]*node
	elements map[int]*node
	// target is the number of the value here, negative for none.
	target int
	// texts are the numbers of the texts that are looked for among the elements.
	texts map[string]int
	// These are the numbers of this node and of all below it.
	targetsBelow, watchesBelow []int
}

// Found is what paths lead to in one text.
type Found struct {
	// Values are the values by the number that Add returned, nil for nothing.
	Values [][]byte
	// Holds is true by the number that Watch returned if an element equals its text.
	Holds []bool
	// examined counts the bytes that were read, and allows tests to see that each is read once.
	examined int
}

// Add adds a path to a value and returns its number. An equal path has the same number.
func (p *Paths) Add(path []Step) int {
	at := p.lead(path)
	if at[len(at)-1].target < 0 {
		at[len(at)-1].target = p.targets
		for _, n := range at {
			n.targetsBelow = append(n.targetsBelow, p.targets)
		}
		p.targets++
	}
	return at[len(at)-1].target
}

// Watch adds a path to an array, of which an element is to equal a text: a string exactly, a number or boolean by its
// JSON text. It returns the number of the pair.
func (p *Paths) Watch(path []Step, text string) int {
	at := p.lead(path)
	last := at[len(at)-1]
	if number, known := last.texts[text]; known {
		return number
	}
	if last.texts == nil {
		last.texts = map[string]int{}
	}
	last.texts[text] = p.watches
	p.longest = max(p.longest, len(text))
	for _, n := range at {
		n.watchesBelow = append(n.watchesBelow, p.watches)
	}
	p.watches++
	return p.watches - 1
}

// lead returns the nodes on a path, from the root to its end, and makes those that are missing.
func (p *Paths) lead(path []Step) []*node {
	if p.targets+p.watches == 0 {
		p.root.target = -1
	}
	at := []*node{&p.root}
	for _, step := range path {
		n := at[len(at)-1]
		var next *node
		if step.Index >= 0 {
			next = n.elements[step.Index]
		} else {
			next = n.members[step.Name]
		}
		if next == nil {
			next = &node{target: -1}
			n.add(step, next)
		}
		p.longest = max(p.longest, len(step.Name))
		at = append(at, next)
	}
	return at
}

func (n *node) add(step Step, next *node) {
	if step.Index >= 0 {
		if n.elements == nil {
			n.elements = map[int]*node{}
		}
		n.elements[step.Index] = next
		return
	}
	if n.members == nil {
		n.members = map[string]*node{}
	}
	n.members[step.Name] = next
}

// Find follows the paths in a checked text. Of members with one name the last counts. It recurses only as deep as the
// paths are long.
func (p *Paths) Find(text []byte) Found {
	w := walk{
		Found: Found{Values: make([][]byte, p.targets), Holds: make([]bool, p.watches)},
		text:  text, plain: make(plain, p.longest+utf8.UTFMax),
	}
	if p.targets+p.watches > 0 {
		w.value(&p.root, skipSpace(text, 0))
	}
	return w.Found
}

// walk is one pass over a text.
type walk struct {
	Found
	text  []byte
	plain plain
}

// value follows the paths below a node in the value that begins at i, and returns where it ends.
func (w *walk) value(n *node, i int) (end int) {
	switch {
	case w.text[i] == '{' && n.members != nil:
		end = w.object(n, i+1)
	case w.text[i] == '[' && (n.elements != nil || n.texts != nil):
		end = w.array(n, i+1)
	default:
		end = w.skip(i)
	}
	if n.target >= 0 {
		w.Values[n.target] = w.text[i:end:end]
	}
	return end
}

func (w *walk) skip(i int) (end int) {
	end = skipValue(w.text, i)
	w.examined += end - i
	return end
}

// object follows the paths in the object whose members begin at i.
func (w *walk) object(n *node, i int) (end int) {
	for {
		quoted, at, ok := nextEntry(w.text, i, true)
		if !ok {
			return at
		}
		w.examined += len(quoted)
		var next *node
		if name, ok := w.plain.name(quoted[1 : len(quoted)-1]); ok {
			next = n.members[string(name)]
		}
		if next == nil {
			i = w.skip(at)
			continue
		}
		w.forget(next)
		i = w.value(next, at)
	}
}

// array follows the paths in the array whose elements begin at i.
func (w *walk) array(n *node, i int) (end int) {
	for k := 0; ; k++ {
		_, at, ok := nextEntry(w.text, i, false)
		if !ok {
			return at
		}
		if next := n.elements[k]; next != nil {
			i = w.value(next, at)
		} else {
			i = w.skip(at)
		}
		if n.texts != nil {
			w.compare(n, w.text[at:i])
		}
	}
}

// forget removes what an earlier member of the same name led to.
func (w *walk) forget(n *node) {
	for _, target := range n.targetsBelow {
		w.Values[target] = nil
	}
	for _, watch := range n.watchesBelow {
		w.Holds[watch] = false
	}
}

// compare notes if an element equals a text.
func (w *walk) compare(n *node, element []byte) {
	switch KindOf(element) {
	case Number, Boolean:
		if number, is := n.texts[string(element)]; is {
			w.Holds[number] = true
		}
	case String:
		text, ok := w.plain.text(element[1 : len(element)-1])
		if !ok {
			return
		}
		if number, is := n.texts[string(text)]; is {
			w.Holds[number] = true
		}
	default: // nothing else equals a text
	}
}
