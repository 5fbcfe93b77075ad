package svg

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/annals-project/annals/internal/seedtest"
)

var update = flag.Bool("update", false, "write the golden files")

// checkGolden compares a drawing with its golden file.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	got = strings.ReplaceAll(got, "><", ">\n<") + "\n"
	if strings.Contains(got, "ZgotmplZ") {
		t.Error("a reference was refused as unsafe")
	}
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the drawing differs from %s; look at it, then run go test ./console/svg -update", path)
	}
}

type rect struct{ x, y, width, height float64 }

func (r rect) holds(p [2]float64) bool {
	const border = 0.5
	return p[0] > r.x+border && p[0] < r.x+r.width-border && p[1] > r.y+border && p[1] < r.y+r.height-border
}

// geometry is the boxes of a drawing by the references of their nodes, and the lines of its edges in short segments.
type geometry struct {
	boxes map[string]rect
	lines [][2][2]float64
	// joints are the ends of curves and of lines in lanes, arrows left out.
	joints map[[2]float64][][2]float64
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func parse(t *testing.T, markup string) []*html.Node {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(markup))
	if err != nil {
		t.Fatal(err)
	}
	nodes := []*html.Node{}
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func read(t *testing.T, drawing Drawing) geometry {
	t.Helper()
	g := geometry{boxes: map[string]rect{}, joints: map[[2]float64][][2]float64{}}
	for _, n := range parse(t, string(drawing.SVG)) {
		if n.Data == "rect" {
			r := rect{
				number(t, attribute(n, "x")), number(t, attribute(n, "y")),
				number(t, attribute(n, "width")), number(t, attribute(n, "height")),
			}
			for at, b := range g.boxes {
				if r.x < b.x+b.width && b.x < r.x+r.width && r.y < b.y+b.height && b.y < r.y+r.height {
					t.Errorf("the box of %s overlaps that of %s", attribute(n.Parent, "href"), at)
				}
			}
			g.boxes[attribute(n.Parent, "href")] = r
		}
		if n.Data == "path" {
			g.addPath(t, attribute(n, "d"))
		}
	}
	return g
}

// addPath adds a path of the commands M, C, H and L.
func (g *geometry) addPath(t *testing.T, d string) {
	t.Helper()
	at := [2]float64{}
	line := func(to [2]float64) {
		g.lines = append(g.lines, [2][2]float64{at, to})
		at = to
	}
	for len(d) > 0 {
		end := 1 + strings.IndexAny(d[1:]+"M", "MCHL")
		command, numbers := d[0], []float64{}
		for _, f := range strings.Fields(d[1:end]) {
			numbers = append(numbers, number(t, f))
		}
		d = d[end:]
		start := at
		switch command {
		case 'M':
			at = [2]float64{numbers[0], numbers[1]}
			continue
		case 'H':
			line([2]float64{numbers[0], at[1]})
		case 'L':
			for i := 0; i < len(numbers); i += 2 {
				line([2]float64{numbers[i], numbers[i+1]})
			}
			continue // an arrow
		case 'C':
			for i := 1; i <= 24; i++ {
				u := float64(i) / 24
				v, p := 1-u, [2]float64{}
				for k := range 2 {
					p[k] = v*v*v*start[k] + 3*v*v*u*numbers[k] + 3*v*u*u*numbers[2+k] + u*u*u*numbers[4+k]
				}
				line(p)
			}
			at = [2]float64{numbers[4], numbers[5]}
		default:
			t.Fatalf("command %c", command)
		}
		g.joints[start] = append(g.joints[start], at)
	}
}

// check reports edges that cross a box. Segments are short or horizontal, so points on them are enough.
func (g *geometry) check(t *testing.T) {
	t.Helper()
	for _, l := range g.lines {
		near := []string{}
		for at, b := range g.boxes {
			if min(l[0][0], l[1][0]) < b.x+b.width && max(l[0][0], l[1][0]) > b.x &&
				min(l[0][1], l[1][1]) < b.y+b.height && max(l[0][1], l[1][1]) > b.y {
				near = append(near, at)
			}
		}
		steps := int(math.Hypot(l[1][0]-l[0][0], l[1][1]-l[0][1])/4) + 1
		for i := range steps + 1 {
			u := float64(i) / float64(steps)
			p := [2]float64{l[0][0] + u*(l[1][0]-l[0][0]), l[0][1] + u*(l[1][1]-l[0][1])}
			for _, at := range near {
				if g.boxes[at].holds(p) {
					t.Fatalf("an edge crosses the box of %s at %v", at, p)
				}
			}
		}
	}
}

// joined reports whether the lines lead from one box to another.
func (g *geometry) joined(from, to rect) bool {
	start := [2]float64{from.x + from.width, from.y + from.height/2}
	end := [2]float64{to.x, to.y + to.height/2}
	for queue, seen := [][2]float64{start}, map[[2]float64]bool{}; len(queue) > 0; queue = queue[1:] {
		if math.Hypot(queue[0][0]-end[0], queue[0][1]-end[1]) < 0.1 {
			return true
		}
		for _, next := range g.joints[queue[0]] {
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return false
}

func folded(n int) string { return "+" + strconv.Itoa(n) }

func testNode(i int) Node {
	return Node{
		ID: strconv.Itoa(i), Title: fmt.Sprintf("Node %d has a title that is too long", i),
		Subtitle: "claim, 3 June 2025", Href: fmt.Sprintf("/n/%d", i),
	}
}

// randomLineage draws a graph of n nodes in which each node has some inputs among those before it.
func randomLineage(random *rand.Rand, n int, cycles bool) Lineage {
	l := Lineage{Label: "Lineage", Folded: folded}
	reach := 1 + random.IntN(60)
	for i := range n {
		node := testNode(i)
		if random.IntN(4) == 0 {
			node.Inputs = Link{"+ 3 inputs", "?reveal=x"}
		}
		l.Nodes = append(l.Nodes, node)
		for range random.IntN(4) {
			if i > 0 {
				l.Edges = append(l.Edges, Edge{From: strconv.Itoa(max(0, i-1-random.IntN(reach))), To: strconv.Itoa(i)})
			}
		}
		if cycles && random.IntN(20) == 0 {
			l.Edges = append(l.Edges, Edge{From: strconv.Itoa(i), To: strconv.Itoa(random.IntN(i + 1))})
		}
	}
	return l
}

func TestLineage_RandomGraphs_NoEdgeCrossesANodeAndEachLeadsToItsNode(t *testing.T) {
	random := rand.New(rand.NewPCG(seedtest.Of(t), 1))
	for round := range 40 {
		l := randomLineage(random, 1+random.IntN(400), round%4 == 3)
		drawing := l.Draw()
		g := read(t, drawing)
		g.check(t)
		if drawing.Omitted != 0 {
			t.Errorf("%d nodes and edges are omitted", drawing.Omitted)
		}
		for _, e := range l.Edges {
			from, drawn := g.boxes["/n/"+e.From]
			to, draws := g.boxes["/n/"+e.To]
			if e.From != e.To && drawn && draws && !g.joined(from, to) && !g.joined(to, from) {
				t.Fatalf("no edge leads from %s to %s", e.From, e.To)
			}
		}
		if again := l.Draw(); again != drawing {
			t.Fatal("the same graph is drawn in two ways")
		}
	}
}

func TestLineage_ManyNodesOfARank_TheLastAreListed(t *testing.T) {
	l := Lineage{Nodes: []Node{testNode(0)}, Folded: folded}
	for i := 1; i <= 400; i++ {
		l.Nodes = append(l.Nodes, testNode(i))
		l.Edges = append(l.Edges, Edge{From: "0", To: strconv.Itoa(i)})
	}
	d := l.Draw()
	if n := len(read(t, d).boxes); n != 1+maxOfRank {
		t.Errorf("%d boxes are drawn", n)
	}
	listed := 0
	for _, n := range parse(t, string(d.Lists)) {
		if n.Data == "li" {
			listed++
		}
	}
	if listed != 400-(maxOfRank-1) || !strings.Contains(string(d.SVG), strconv.Itoa(listed)) {
		t.Errorf("%d nodes are listed", listed)
	}
	if !strings.Contains(string(d.SVG), `href="#lineage-1"`) || !strings.Contains(string(d.Lists), `id="lineage-1"`) {
		t.Error("the box of the others does not lead to their list")
	}
}

func TestLineage_HostileGraph_IsBounded(t *testing.T) {
	l := Lineage{Folded: folded}
	for i := range 2 * maxNodes {
		l.Nodes = append(l.Nodes, testNode(i))
		for j := range min(i, 20) {
			near, far := strconv.Itoa(i-j-1), strconv.Itoa(j)
			l.Edges = append(l.Edges, Edge{From: near, To: strconv.Itoa(i)}, Edge{From: far, To: strconv.Itoa(i)})
		}
	}
	d := l.Draw()
	if d.Omitted == 0 || len(d.SVG) > 8<<20 {
		t.Errorf("%d omitted, %d bytes", d.Omitted, len(d.SVG))
	}
	g := read(t, d)
	g.check(t)
}

func TestLineage_Golden(t *testing.T) {
	source := Node{ID: "s", Title: "Planning call", Subtitle: "Source, 12 May 2025", Href: "/trace/s", Class: "source root"}
	small := Lineage{Label: "Lineage of Planning call", Nodes: []Node{source}}
	for i, title := range []string{"The launch is on 3 June 2025", "Never deploy on Fridays", "Ana moved the launch to 3 June 2025, and Ben agreed"} {
		id := strconv.Itoa(i)
		small.Nodes = append(small.Nodes, Node{
			ID: id, Title: title, Subtitle: "Claim", Href: "/trace/" + id, Class: "memory",
			Inputs: Link{"inputs +1", "/lineage?reveal=" + id + ":inputs"}, Outputs: Link{"outputs +2", "/lineage?reveal=" + id + ":outputs"},
		})
		small.Edges = append(small.Edges, Edge{From: "s", To: id})
	}
	small.Edges = append(small.Edges, Edge{From: "0", To: "2", Class: "superseded"}, Edge{From: "2", To: "0", Class: "superseded"})
	for name, l := range map[string]Lineage{
		"lineage-small.svg": small,
		"lineage-60.svg":    randomLineage(rand.New(rand.NewPCG(60, 1)), 60, false),
		"lineage-400.svg":   randomLineage(rand.New(rand.NewPCG(400, 1)), 400, true),
		"lineage-empty.svg": {Label: "Empty"},
	} {
		d := l.Draw()
		g := read(t, d)
		g.check(t)
		checkGolden(t, name, string(d.SVG+d.Lists))
	}
}
