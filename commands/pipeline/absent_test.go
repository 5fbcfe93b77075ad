package pipeline

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/internal/minilm"
	"github.com/annals-project/annals/internal/runtest"
)

// storeVariable names the environment variable with the size of the largest store of TestLeastCosine_Absent.
const storeVariable = "ANNALS_TEST_ABSENT"

// everyday makes short texts of an office and its people, no two alike, as many as are wanted.
func everyday(count int) (texts []string) {
	people := strings.Fields(`Paolo Wilma Tariq Eszter Jorge Maud Pekka Zofia Idris Carmen Anselm Birgit Dmitri Fatou Gustav
		Helmi Istvan Jolanta Karim Leonor Mirko Nadia Oskar Pilar Quentin Rosa Stefan Tamara Ugo Vera`)
	deeds := strings.Split(`ordered new chairs|wants to move the desk|forgot the folder|booked the small meeting room|`+
		`likes the blue curtains|lost the badge|prepares the slides|asked about the lunch menu|reviewed the draft|`+
		`signed the delivery note|watered the ferns|cleaned the coffee machine|parked in the yard|shared the calendar|`+
		`needs a longer cable|called the supplier|archived the letters|tested the new scanner|prefers green tea|`+
		`brought cinnamon rolls|fixed the wobbly table|updated the phone list|closed the ticket|hung up the poster|`+
		`counted the stock|labelled the boxes|wrote the minutes|greeted the visitors|checked the fire exit|`+
		`rearranged the shelves|paid for the stamps|printed the badges|answered the mail|missed the bus|`+
		`renewed the parking permit|joined the hiking group|borrowed the projector|swapped the shift|`+
		`planned the summer party|took the minutes home`, "|")
	when := strings.Split(`on Monday|on Tuesday|on Friday|before lunch|after the break|in the morning|in the evening|`+
		`last week|this week|twice|again|with a colleague|for the new office|for the customer|without asking|`+
		`as agreed|by mistake|in a hurry|with great care|for the second time|during the audit|after the meeting|`+
		`at the front desk|in the back office|on behalf of the team`, "|")
	for n := range count {
		text := fmt.Sprintf("%s %s %s.", people[n%len(people)], deeds[n/len(people)%len(deeds)],
			when[n/len(people)/len(deeds)%len(when)])
		texts = append(texts, text)
	}
	return texts
}

// linesOf returns the lines of a file of testdata.
func linesOf(t *testing.T, name string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	runtest.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// At least 90 of 100 questions about what is not there get nothing, in stores of few texts and of many. Of 100 texts
// that answer a question in other words one is lost among few texts, and more of them among many: the model cannot tell
// them from what is near by chance. ANNALS_TEST_ABSENT=30000 adds a store of so many texts, which takes some minutes.
func TestLeastCosine_Absent(t *testing.T) {
	m := newEncoder(t)
	questions, pairs := linesOf(t, "absent.txt"), linesOf(t, "paraphrases.txt")
	sizes := []int{3, 300}
	if more := os.Getenv(storeVariable); more != "" {
		var size int
		if _, err := fmt.Sscan(more, &size); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, size)
	}
	var cosines []float64
	for _, pair := range pairs {
		text, question, _ := strings.Cut(pair, " | ")
		of := m.text(pointOf(text))
		asked := m.analyzer.Query(question)
		for _, term := range asked {
			if slices.Contains(of.terms, term.Text) {
				t.Errorf("%q shares %q with its question", text, term.Text)
			}
		}
		cosines = append(cosines, slices.Max(m.cosines(question, of.vectors)))
	}
	var all []memory.Vector
	for _, text := range everyday(slices.Max(sizes)) {
		all = append(all, m.text(pointOf(text)).vectors...)
	}
	random := rand.New(rand.NewPCG(46, 4))
	for _, size := range sizes {
		least := minilm.LeastCosine(size)
		drawn := random.Perm(len(all))[:size]
		var best []float64
		empty := 0
		for _, question := range questions {
			of, nearest := m.cosines(question, all), -1.0
			for _, i := range drawn {
				nearest = max(nearest, of[i])
			}
			best = append(best, nearest)
			if nearest < least {
				empty++
			}
		}
		lost := 0
		for i, cosine := range cosines {
			if cosine < least {
				lost++
				t.Logf("of %d texts, %q is lost: %.3f", size, pairs[i], cosine)
			}
		}
		slices.Sort(best)
		t.Logf("of %d texts, least cosine %.3f: %d of %d questions about absent things get nothing, nearest %s; %d of %d "+
			"paraphrases are lost", size, least, empty, len(questions), quantiles(best), lost, len(pairs))
		if 10*empty < 9*len(questions) {
			t.Errorf("of %d texts, only %d of %d questions about absent things get nothing", size, empty, len(questions))
		}
		most := 10
		switch {
		case size <= 3:
			most = 1
		case size > 300:
			most = 15
		}
		if 100*lost > most*len(pairs) {
			t.Errorf("of %d texts, %d of %d paraphrases are lost", size, lost, len(pairs))
		}
	}
	slices.Sort(cosines)
	t.Logf("paraphrases: %s", quantiles(cosines))
}

func pointOf(text string) client.DataPoint {
	return client.DataPoint{ID: text, Content: text, Identity: "ana", Timestamp: "2025-05-12T09:00:00Z"}
}
