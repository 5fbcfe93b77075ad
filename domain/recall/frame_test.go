package recall_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/recall"
)

// statement is a text of an author, of a later day than the one before it.
type statement struct{ author, text string }

// orderOf arranges statements, of which each scores a little more than the next, for a question.
func orderOf(question, asker string, statements ...statement) (texts []string, moves []recall.Move) {
	a := recall.NewAnalyzer()
	q := a.Question(question, asker, began)
	w := a.Wordings(&q)
	list := make([]recall.Placed, len(statements))
	for i, s := range statements {
		counts := recall.Counts(q.Terms, a.Passages(recall.Document{Content: s.text, Author: s.author})[0])
		list[i] = placed(float64(len(statements)-i), i, q.Held(counts))
		list[i].HeldAnywhere, list[i].Wording = q.HeldAnywhere(counts), w.Of(s.text, s.author)
		list[i].ByAsker = q.Asker != "" && s.author == q.Asker
		traits := recall.TraitsOf(s.text)
		list[i].Negates, list[i].IsQuestion = traits.Has(recall.Negates), traits.Has(recall.IsQuestion)
	}
	for _, p := range q.Order(list) {
		texts, moves = append(texts, statements[p.Candidate].text), append(moves, p.Move)
	}
	return texts, moves
}

func outlineOf(text string) recall.Outline {
	_, outline := recall.Shared().States(text)
	return outline
}

// Texts that begin and end with other words are not on one thing, unless the later one has a sign of a correction. A
// text of which no outline is known may be on anything.
func TestOutline_MayBeOn(t *testing.T) {
	const long = "Since the flood of last May the gate code of the north yard is 9020"
	for _, c := range []struct {
		earlier, later string
		want           bool
	}{
		{"The gate code is 9020.", "The harbour meeting is at 3 pm", true},
		{"The gate code is 9020.", "Ana knows that it is 9020!", true},
		{"The gate code is 9020.", "Ana wrote down a gate code.", false},
		{"The gate code is 9020.", "Ana wrote down a new gate code.", true},
		{"The gate code is 9020.", "Ana needs no gate code anymore, she is in.", true},
		{"The gate code is 9020.", "Ana wrote. We moved to another gate.", true},
		{"The gate code is 9020.", "Is anything new?", false},
		{"The gate code is 9020.", "", true},
		{long, "Since the flood nobody has been at the gate of the south yard again", true},
		{long, "Since Monday the north yard is closed, and the gate is open all day", false},
		{long, "Nobody knows it: the gate code of the whole north yard is 9020", true},
		{long, "Since Monday it is 9020", false},
		{"Since Monday it is 9020", long, false},
		{"The north yard is 9020", long, true},
	} {
		earlier, later := outlineOf(c.earlier), outlineOf(c.later)
		if got := later.MayBeOn(earlier); got != c.want {
			t.Errorf("%q after %q: %v, want %v", c.later, c.earlier, got, c.want)
		}
	}
	if second := outlineOf("Ana wrote down a gate code."); !second.MayBeOn(0) || !recall.Outline(0).MayBeOn(second) {
		t.Error("a text without an outline is not compared")
	}
	if got := outlineOf("The gate code is 9020."); got != 0x1e7345a31e4783b4 {
		t.Errorf("outline %#x: a table holds it, so it is the same in each process and version", got)
	}
}

// What differs in one stretch of words, wherever that is, begins or ends alike.
func TestOutline_OneStretch(t *testing.T) {
	words := strings.Fields("a b c d e f g h i j k l m n o p q r s t")
	for n := 2; n <= len(words); n++ {
		for from := range n {
			for to := from; to <= min(n, from+6); to++ {
				if to-from == n {
					continue // nothing is the same
				}
				for added := 0; added <= 6; added++ {
					changed := slices.Concat(words[:from], strings.Fields("u v w x y z")[:added], words[to:n])
					first, second := outlineOf(strings.Join(words[:n], " ")), outlineOf(strings.Join(changed, " "))
					if !second.MayBeOn(first) || !first.MayBeOn(second) {
						t.Fatalf("%q and %q are not compared", words[:n], changed)
					}
				}
			}
		}
	}
}

// The later of two statements of one thing goes to the place of the earlier.
func TestQuestion_LaterStatementFirst(t *testing.T) {
	for _, c := range []struct {
		question       string
		earlier, later string
	}{
		{"What is the wifi password?", "The wifi password is tern.", "The wifi password is gull."},
		{"What is the gate code?", "Gate code is 9020.", "Gate code is 9021."},
		{"What is the counter?", "Counter is 599.", "Counter is 600."},
		{"Which database do we use?", "We use MySQL.", "We use Postgres."},
		{"When is our standup?", "Our standup is at 9:30.", "Our standup is now at 10:00."},
		{"What is my phone number?", "My phone number is 555 0134.", "My phone number is 555 0177!"},
		{"Wie lautet das Passwort?", "Das Passwort lautet Möwe.", "Das Passwort lautet Seeschwalbe."},
		{"Où est la clé de la cave ?", "La clé de la cave est chez Nadia.", "La clé de la cave est chez Hugo."},
		{"Какой пароль от склада?", "Пароль от склада чайка.", "Пароль от склада крачка."},
		{"倉庫の番号は?", "倉庫の番号は12です。", "倉庫の番号は34です。"},
		// Corrections are written in other ways.
		{"When is the harbour meeting?", "The harbour meeting is at 3 pm.", "Correction: the harbour meeting is at 4 pm, not 3 pm."},
		{"What is the gate code?", "Gate code is 9020.", "The new gate code is 9021, as of Monday."},
		{"What is the wifi password?", "The wifi password is tern.", "I changed the wifi password to gull."},
		{"When is the harbour meeting?", "The harbour meeting is at 3 pm.", "We moved the harbour meeting from 3 to 4 pm."},
		{"Do I use Vim?", "I use Vim.", "I don't use Vim anymore."},
		{"When is the harbour meeting?", "The harbour meeting is at 3 pm.", "Update: the harbour meeting is in the canteen at 4."},
		{"Wie lautet der Türcode?", "Der Türcode lautet 3321.", "Der neue Türcode für das Lager lautet ab sofort 9020."},
		{"Is Petra vegetarian?", "Petra is vegetarian.", "Petra is no longer vegetarian, she eats fish again."},
		{"Where is the regatta?", "The regatta starts in Leith on Sunday morning.", "Bad news. The regatta has moved to Oban because of the wind."},
		{"Who leads the audit?", "Ines leads the audit.", "The audit is led not by Ines but by Tariq."},
		{"Wann ist die Abnahme?", "Die Abnahme ist am Montag.", "Die Abnahme ist nicht am Montag, sondern am Freitag."},
		{"Wer macht die Abrechnung?", "Jana macht die Abrechnung.", "Jana macht die Abrechnung nicht mehr, das übernimmt jetzt Timo."},
		{"Qui garde le chien ?", "Luc garde le chien.", "Luc ne garde plus le chien, c'est Anne."},
		{"¿Dónde trabaja Marta?", "Marta trabaja en Lugo.", "Marta ya no trabaja en Lugo."},
		{"Dove è la riunione?", "La riunione è in sala 4.", "La riunione è stata spostata alle cinque in sala 7."},
		{"Onde fica o depósito?", "O depósito fica em Faro.", "O depósito já não fica em Faro."},
		{"Waar is het overleg?", "Het overleg is in kamer 3.", "Het overleg is verplaatst naar kamer 8."},
		{"Var är mötet?", "Mötet är i sal 2.", "Mötet är inte längre i sal 2."},
		{"Где живёт Олег?", "Олег живёт в Твери.", "Олег больше не живёт в Твери."},
	} {
		texts, moves := orderOf(c.question, "ana", statement{"ana", c.earlier}, statement{"ana", c.later})
		if texts[0] != c.later || moves[0] != recall.MoveLaterStatement {
			t.Errorf("%s: %q, moves %q", c.question, texts, moves)
		}
		if later, earlier := outlineOf(c.later), outlineOf(c.earlier); !later.MayBeOn(earlier) {
			t.Errorf("%s: the outlines %x and %x keep the texts from being compared", c.question, later, earlier)
		}
		// Sent the other way round, the order is that of the times: the text that is first in the list is the earlier.
		if texts, _ := orderOf(c.question, "ana", statement{"ana", c.later}, statement{"ana", c.earlier}); texts[0] != c.earlier &&
			moves[0] == recall.MoveNone {
			t.Errorf("%s, the other way round: %q", c.question, texts)
		}
	}
}

// What must not change: texts on other things keep their order, and so does the history that a question asks for.
func TestQuestion_LaterStatementOfAnotherThing(t *testing.T) {
	for _, c := range []struct {
		name, question string
		first, second  statement
	}{
		{
			"parallel facts", "When is Petra's birthday?",
			statement{"ana", "Petra's birthday is in May."},
			statement{"ana", "Noor's birthday is in June."},
		},
		{
			"parallel facts by key", "What is the code of gate 7?",
			statement{"ana", "The code of gate 7 is 4471."},
			statement{"ana", "The code of gate 8 is 9020."},
		},
		{
			"another attribute", "Who has ticket QX-1412?",
			statement{"ana", "Ticket QX-1412 is with Petra."},
			statement{"ana", "Ticket QX-1412 is due on 3 May."},
		},
		{
			"another verb", "Where does my mother live?",
			statement{"ana", "My mother lives in Lund."},
			statement{"ana", "My mother is a nurse."},
		},
		{
			"two authors about themselves", "What is the phone number?",
			statement{"ana", "My phone number is 555 0134."},
			statement{"ben", "My phone number is 555 0177."},
		},
		{
			"two authors in German", "Wie ist die Nummer?",
			statement{"ana", "Meine Nummer ist 4471."},
			statement{"ben", "Meine Nummer ist 9020."},
		},
		{
			"one author, the other corrects", "Who uses Vim?",
			statement{"ana", "I use Vim."},
			statement{"ben", "I no longer use Vim."},
		},
		{"only a stop word in common", "What did I buy?", statement{"ana", "I bought a car."}, statement{"ana", "I ate soup."}},
		{"no word in common", "soup or car?", statement{"ana", "I ate soup."}, statement{"ana", "I bought a car."}},
		{
			"a boilerplate sentence", "What does the handbook say of knots?",
			statement{"ana", "This page is part of the handbook. Knots are tied twice and shown to the mate before the sail goes up."},
			statement{"ana", "This page is part of the handbook. Knots are untied in the evening, and all of the ropes are hung up to dry on deck."},
		},
		{
			"the value of the earlier is named", "Is the wifi password tern?",
			statement{"ana", "The wifi password is tern."},
			statement{"ana", "The wifi password is gull."},
		},
		{
			"what was first", "What was the wifi password first?",
			statement{"ana", "The wifi password is tern."},
			statement{"ana", "The wifi password is gull."},
		},
		{
			"what was before", "What was the wifi password before?",
			statement{"ana", "The wifi password is tern."},
			statement{"ana", "The wifi password is gull."},
		},
		{
			"what used to be", "Where did Ana use to work, where she used to be?",
			statement{"ana", "Ana works at Initech."},
			statement{"ana", "Ana works at Globex."},
		},
		{
			"history in German", "Wo hat Ana früher gearbeitet?",
			statement{"bo", "Ana arbeitet bei Initech."},
			statement{"bo", "Ana arbeitet bei Globex."},
		},
		{"the asker's own", "What is my locker?", statement{"ana", "The locker is 12."}, statement{"ben", "The locker is 13."}},
		{
			"a text by the author that is named", "What did ben say of the locker?",
			statement{"ben", "The locker is 12."},
			statement{"ana", "The locker is 13."},
		},
		{
			"something new of it", "Where is the harbour office?",
			statement{"ana", "The harbour office is in the old mill."},
			statement{"ana", "The harbour office has a new printer."},
		},
		{
			"not only adds", "Who leads the audit?",
			statement{"ana", "Ines leads the audit."},
			statement{"ana", "The budget of the audit is not only late but also too low, as the whole office knows."},
		},
		{
			"a correction of something else", "When is the harbour meeting?",
			statement{"ana", "The harbour meeting is at 3 pm."},
			statement{"ana", "Correction: the canteen opens at 4 pm."},
		},
	} {
		texts, moves := orderOf(c.question, "ana", c.first, c.second)
		if texts[0] != c.first.text {
			t.Errorf("%s: %q, moves %q", c.name, texts, moves)
		}
	}
}

// A list of parallel facts stays whole, the latest first where nothing else decides.
func TestQuestion_LaterStatements(t *testing.T) {
	texts, _ := orderOf("Which tickets are open?", "ana", statement{"ana", "Ticket 12 is open."},
		statement{"ana", "The canteen is open."}, statement{"ana", "Ticket 13 is open."}, statement{"ana", "Ticket 14 is open."})
	want := []string{"Ticket 14 is open.", "Ticket 13 is open.", "Ticket 12 is open.", "The canteen is open."}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Error(diff)
	}
}

// Of texts with the same words of a question that negates, those that deny come first.
func TestQuestion_Negation(t *testing.T) {
	for _, c := range []struct {
		question, affirms, denies string
	}{
		{"Who is not allergic to nuts?", "Ana is allergic to nuts.", "Bo is not allergic to nuts."},
		{"Who isn't allergic to nuts?", "Ana is allergic to nuts.", "Bo isn't allergic to nuts."},
		{"Who doesn't eat meat?", "Ana eats meat.", "Bo doesn’t eat meat."},
		{"Which rooms have no heating?", "Room 3 has heating.", "Room 4 has no heating."},
		{"Who never works on Fridays?", "Ana works on Fridays.", "Bo never works on Fridays."},
		{"Wer isst kein Fleisch?", "Ana isst Fleisch.", "Bo isst kein Fleisch."},
		{"Qui ne mange pas de viande ?", "Ana mange de la viande.", "Bo ne mange pas de viande."},
		{"¿Quién no come carne?", "Ana come carne.", "Bo no come carne."},
		{"Chi non mangia carne?", "Ana mangia carne.", "Bo non mangia carne."},
		{"Quem não come carne?", "Ana come carne.", "Bo não come carne."},
		{"Wie eet geen vlees?", "Ana eet vlees.", "Bo eet geen vlees."},
		{"Vem äter inte kött?", "Ana äter kött.", "Bo äter inte kött."},
		{"Кто не ест мясо?", "Анна ест мясо.", "Борис не ест мясо."},
	} {
		texts, moves := orderOf(c.question, "reader", statement{"ana", c.affirms}, statement{"bo", c.denies})
		if texts[0] != c.denies || moves[0] != recall.MoveNegates {
			t.Errorf("%s: %q, moves %q", c.question, texts, moves)
		}
	}
}

// Who affirms does not replace who denies; what is affirmed later of the same thing does.
func TestQuestion_NegationAndLaterStatement(t *testing.T) {
	texts, _ := orderOf("Who never rides horses?", "reader", statement{"pia", "Otto never rides horses."},
		statement{"pia", "Uma rides horses."})
	if texts[0] != "Otto never rides horses." {
		t.Errorf("%q", texts)
	}
	texts, _ = orderOf("Who does not eat fish?", "reader", statement{"pia", "Otto will not eat fish."},
		statement{"pia", "Otto will eat fish."})
	if texts[0] != "Otto will eat fish." {
		t.Errorf("the later of one thing is not first: %q", texts)
	}
}

// A "not" that is part of a name or an idiom is no negation, nor is the question whether something is.
func TestQuestion_NotNegated(t *testing.T) {
	a := recall.NewAnalyzer()
	for _, question := range []string{
		"Is Ana allergic to nuts or not?", "Whether or not Ana came?", "Why not meet on Monday?", "Did Ana bring not only rope but tar?",
		"Who wrote Never Let Me Go?", "When does Dr. No start?", "Who is in room No. 5?", "Who has ticket no 12?",
		"Isn't Ana allergic to nuts?", "Ana is allergic, isn't she?", "Don't we have a spare key?", "What is the note on the knot?",
		"Kommt Ana oder nicht?", "Pourquoi pas lundi ?", "Ana vient ou non ?", "Varför inte på måndag?", "Who is Nona?",
		"To be or not to be?", "What did The Not Company sell?",
	} {
		if q := a.Question(question, "ana", began); q.Negates {
			t.Errorf("%q asks for what is not", question)
		}
	}
	texts, moves := orderOf("Is Ana allergic to nuts or not?", "reader", statement{"ana", "Ana is allergic to nuts."},
		statement{"bo", "Ana's brother is not allergic to nuts."})
	if moves[0] == recall.MoveNegates {
		t.Errorf("%q, moves %q", texts, moves)
	}
}
