package e2e

import (
	"fmt"
	"strings"

	client "github.com/annals-project/annals/client"
)

// statementCases are cases of what is current, of what is denied, and of conversations.
func statementCases() []recallCase {
	return []recallCase{updateCase(), correctionCase(), denialCase(), historyCase(), crowdCase(), twoAuthorsCase()}
}

// saidBy is a data point of an author.
func saidBy(id, at, author, content string) client.DataPoint {
	return client.DataPoint{ID: id, Timestamp: at, Identity: author, Content: content}
}

// pairs makes a case of texts "earlier | later | question": the later one must be first.
func pairs(name, list string) recallCase {
	c := recallCase{Case: name, Points: others()}
	for line := range strings.Lines(list) {
		fields := strings.Split(strings.TrimSpace(line), " | ")
		if len(fields) != 3 {
			continue
		}
		n := len(c.Queries)
		c.Points = append(c.Points, mioSaid(fmt.Sprint("old", n), fmt.Sprintf("2025-03-01T09:%02d:00Z", n), fields[0]),
			mioSaid(fmt.Sprint("new", n), fmt.Sprintf("2025-03-09T09:%02d:00Z", n), fields[1]))
		c.Queries = append(c.Queries, wanting(fields[2], wanted{First: fmt.Sprint("new", n), Has: []string{fmt.Sprint("old", n)}}))
	}
	return c
}

// Plain updates of one author: the new value is first, whatever the thing is.
func updateCase() recallCase {
	return pairs("update", `The alarm code is 7781. | The alarm code is 7718. | What is the alarm code?
		The locker number is 12. | The locker number is 47. | What is the locker number?
		Our printer is called Hippo. | Our printer is called Rhino. | What is our printer called?
		The rent is 840 euros. | The rent is 910 euros. | How much is the rent?
		The router sits in the attic. | The router sits in the cellar. | Where does the router sit?
		Nadia's title is analyst. | Nadia's title is director. | What is Nadia's title?
		The retro is at 14:00. | The retro is at 15:30. | When is the retro?
		The release branch is v4. | The release branch is v5. | Which release branch is it?
		My shoe size is 41. | My shoe size is 42. | What is my shoe size?
		I sleep in room 9. | I sleep in room 11. | Which room do I sleep in?
		Our lawyer is Mr Brandt. | Our lawyer is Ms Okafor. | Who is our lawyer?
		The van needs diesel. | The van needs petrol. | What does the van need?
		The wiki runs on Gollum. | The wiki runs on Outline. | What does the wiki run on?
		The deadline for the grant is 4 April. | The deadline for the grant is 18 April. | What is the deadline for the grant?
		The keypad combination is 55-20. | The keypad combination is 61-20. | keypad combination
		Tilda drives a Fiat. | Tilda drives a Skoda. | What does Tilda drive?
		The archive key hangs by the sink. | The archive key hangs by the stairs. | Where does the archive key hang?
		My insurance costs 31 euros. | My insurance costs 44 euros. | What does my insurance cost?
		The backup starts at midnight. | The backup starts at noon. | When does the backup start?
		Der Türcode lautet 3321. | Der Türcode lautet 3399. | Wie lautet der Türcode?
		Le mot de passe du coffre est hibou. | Le mot de passe du coffre est renard. | Quel est le mot de passe du coffre ?
		La clave del almacén es perro. | La clave del almacén es gato. | ¿Cuál es la clave del almacén?
		Il codice del garage è 119. | Il codice del garage è 911. | Qual è il codice del garage?
		A senha do cofre é lobo. | A senha do cofre é urso. | Qual é a senha do cofre?
		Het wachtwoord van de schuur is meeuw. | Het wachtwoord van de schuur is kraai. | Wat is het wachtwoord van de schuur?
		Lösenordet till boden är mås. | Lösenordet till boden är trana. | Vad är lösenordet till boden?
		Пароль от гаража сова. | Пароль от гаража филин. | Какой пароль от гаража?`)
}

// Corrections are worded in another way than what they correct.
func correctionCase() recallCase {
	return pairs("correction", `The concert starts at 7 pm. | Correction: the concert starts at 8 pm, not 7 pm. | When does the concert start?
		Olek eats gluten. | Olek no longer eats gluten, the doctor forbade it. | Does Olek eat gluten?
		The offsite is in Malaga. | By the way, the offsite has moved to Sintra because of the fair. | Where is the offsite?
		Vera chairs the board. | The board is chaired not by Vera any more but by Emil. | Who chairs the board?
		We deploy with Capistrano. | We use Kamal instead of Capistrano to deploy now. | What do we deploy with?
		Die Probe ist am Dienstag. | Die Probe ist nicht am Dienstag, sondern am Donnerstag. | Wann ist die Probe?
		Rosa travaille à Brest. | Rosa ne travaille plus à Brest depuis lundi. | Où travaille Rosa ?
		El taller abre a las nueve. | El taller ya no abre a las nueve. | ¿Cuándo abre el taller?
		La lezione è il lunedì. | La lezione non è il lunedì, bensì il giovedì. | Quando è la lezione?
		Het feest is in de kantine. | Het feest is verplaatst naar de tuin. | Waar is het feest?`)
}

// Questions that deny ask for those who are denied something; others find both.
func denialCase() recallCase {
	c := recallCase{Case: "denial", Points: others()}
	for n, line := range []string{
		"Uma is insured against theft. | Otto is not insured against theft. | Who is not insured against theft?",
		"Uma attended the fire drill. | Otto didn't attend the fire drill. | Who didn't attend the fire drill?",
		"The cabin has running water. | The shed has no running water. | What has no running water?",
		"Uma rides horses. | Otto never rides horses. | Who never rides horses?",
		"Uma likes olives. | Otto doesn’t like olives. | Who doesn't like olives?",
		"The red van can be locked. | The green van cannot be locked. | Which van cannot be locked?",
		"Uma trinkt Kaffee. | Otto trinkt keinen Kaffee. | Wer trinkt keinen Kaffee?",
		"Uma parle breton. | Otto ne parle pas breton. | Qui ne parle pas breton ?",
		"Uma come pescado. | Otto no come pescado. | ¿Quién no come pescado?",
		"Ума знает пароль. | Отто не знает пароль. | Кто не знает пароль?",
	} {
		fields := strings.Split(line, " | ")
		yes, no := fmt.Sprint("yes", n), fmt.Sprint("no", n)
		// The one who denies it wrote earlier, so that time alone would put it below.
		c.Points = append(c.Points, saidBy(no, fmt.Sprintf("2025-03-%02dT08:00:00Z", n+1), "pia", fields[1]),
			saidBy(yes, fmt.Sprintf("2025-04-%02dT08:00:00Z", n+1), "pia", fields[0]))
		c.Queries = append(c.Queries, wanting(fields[2], wanted{First: no, Has: []string{yes}}))
	}
	return c
}

// What was before, and the value that is named, stay where they were.
func historyCase() recallCase {
	return recallCase{
		Case: "history", Points: append(
			others(), mioSaid("h1", "2025-03-01T08:00:00Z", "The mascot is an owl."),
			mioSaid("h2", "2025-03-05T08:00:00Z", "The mascot is a badger."),
			mioSaid("d1", "2025-03-02T08:00:00Z", "I ran 5 km."), mioSaid("d2", "2025-03-03T08:00:00Z", "I ran 8 km."),
			mioSaid("d3", "2025-03-04T08:00:00Z", "I ran 6 km.")),
		Queries: []caseQuery{
			first("What is the mascot?", "h2"), first("Is the mascot an owl?", "h1"),
			wanting("Which mascot was there before?", wanted{Has: []string{"h1", "h2"}}),
			wanting("How far did I run?", wanted{Top: []string{"d1", "d2", "d3"}}),
		},
	}
}

// Of many who write within an hour, a question about one of them finds no text of the others.
func crowdCase() recallCase {
	c := recallCase{Case: "crowd"}
	absent := []string{}
	for n := range 60 {
		id := fmt.Sprint("c", n)
		c.Points = append(c.Points, saidBy(id, fmt.Sprintf("2025-03-01T09:%02d:00Z", n), fmt.Sprint("member", n%30),
			fmt.Sprintf("Locker %d holds paint.", n+100)))
		absent = append(absent, id)
	}
	c.Points = append(c.Points, saidBy("turtle", "2025-03-01T09:30:30Z", "member7", "Wendy feeds the turtle."))
	c.Queries = []caseQuery{wanting("Who feeds the turtle?", wanted{First: "turtle", Absent: absent})}
	c.Embeddings = "none"
	return c
}

// Two authors about themselves: neither replaces the other.
func twoAuthorsCase() recallCase {
	return recallCase{
		Case: "two authors", Points: append(
			others(), saidBy("m", "2025-03-01T08:00:00Z", "mio", "My bus is line 12."),
			saidBy("p", "2025-03-02T08:00:00Z", "pia", "My bus is line 15.")),
		Queries: []caseQuery{first("What is my bus?", "m"), first("What is Pia's bus?", "p")},
	}
}
