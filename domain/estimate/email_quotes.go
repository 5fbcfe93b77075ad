package estimate

import (
	"regexp"
	"strings"
)

// The forms by which a message shows that what follows is the text of another. All of them are looked for in replies
// alone: a forward is the only place where its reader has the text.
var (
	// wroteVerb is what the lines before a quotation say, in the languages of mail programs.
	wroteVerb = regexp.MustCompile(`(?i)(?:\bwrote|\bwrites|\bschrieb|\ba écrit|\bescribió|\bha scritto|\bescreveu|\bschreef|` +
		`\bskrev|\bnapisał(?:a|\(a\))?|\bnapsal(?:a|\(a\))?|\bkirjoitti|írta|yazdı|пишет|писал(?:а|\(а\))?|έγραψε|\ba scris)(?:[ \p{L}\d.(),<>@:_+'"-]*)\s*[:：]\s*$`)
	// dateLike is a year, a clock, or a date in digits.
	dateLike  = regexp.MustCompile(`\b(?:19|20)\d\d\b|\b\d{1,2}[:.h]\d\d\b|\b\d{1,2}[./-]\d{1,2}[./-]\d{2}\b|(?:19|20)\d\d年`)
	clockLike = regexp.MustCompile(`\b\d{1,2}[:.h]\d\d\b`)
	// addressLike is an address as these lines have it.
	addressLike = regexp.MustCompile(`[^\s<>()\[\]:]+@[^\s<>()\[\]:]+`)
	// original is a line before a message that is repeated in full.
	original = regexp.MustCompile(`(?i)^[ \t]*(?:-{2,}[ \t]*(?:original message|original appointment|ursprüngliche nachricht|` +
		`original-nachricht|message d['’]origine|mensaje original|messaggio originale|mensagem original|` +
		`oorspronkelijk bericht|oorspronkelijke bericht|ursprungligt meddelande|opprinnelig melding|oprindelig meddelelse|` +
		`wiadomość oryginalna|исходное сообщение|original)[ \t]*-{2,}|_{20,})[ \t]*$`)
	// forwarded is a line before a message that is passed on.
	forwarded = regexp.MustCompile(`(?i)^[ \t]*(?:-{2,}|_{2,}|begin|anfang|début|inicio|inizio)[ \t]*(?:der |du |del )?` +
		`(?:forwarded message|forwarded by|weitergeleitete[rn]? (?:nachricht|e-mail)|message (?:transféré|réexpédié)|` +
		`mensaje reenviado|messaggio inoltrato|mensagem encaminhada|doorgestuurd bericht|vidarebefordrat|videresendt|` +
		`wiadomość przekazana|пересылаемое сообщение|przekazana wiadomość|转发|轉寄)`)
	// subjectPrefix is what a program puts before the subject of a reply or forward.
	subjectPrefix = regexp.MustCompile(`^(?:\[[^\]]{1,80}\]\s*)*(\p{L}{1,12})\s*(?:\[\d+\]|\(\d+\)|\^\d+)?\s*[:：]`)
)

// prefixes are those of replies (true) and of forwards. VS is a forward in Danish and a reply in Finnish: a forward, of
// which nothing is cut.
var prefixes = prefixTable(
	"re aw antw antwort sv ref rif r res odp ynt atb bls ang απ σχετ отв ответ תגובה רד 回复 回覆 答复 返信 답장 hv",
	"fw fwd wg tr rv enc i vs vb vl doorst pd ilt i̇lt trs fs prs πρθ пер הועבר 转发 轉寄 転送 전달",
)

func prefixTable(replies, forwards string) map[string]bool {
	table := map[string]bool{}
	for p := range strings.FieldsSeq(replies) {
		table[p] = true
	}
	for p := range strings.FieldsSeq(forwards) {
		table[p] = false
	}
	return table
}

// isReply reports whether a message answers another, so that its thread has the text that it quotes.
func isReply(h header, subject string) bool {
	if m := subjectPrefix.FindStringSubmatch(subject); m != nil {
		if reply, known := prefixes[strings.ToLower(m[1])]; known {
			return reply
		}
	}
	return h.get("x-forwarded-message-id") == "" && (h.get("in-reply-to") != "" || h.get("references") != "")
}

// withoutQuotes returns the text of a reply without what it repeats of others. It never removes all of it.
func (c *cut) withoutQuotes(text string) (kept string, removed bool) {
	kept, removed = c.cutQuotes(text)
	if strings.TrimSpace(kept) == "" {
		return text, false
	}
	return kept, removed
}

// cutQuotes removes lines with ">" once a line said whose they are, such lines, and all after the fields of an
// original message. Answers between quotations stay, and so does all that is passed on.
func (c *cut) cutQuotes(text string) (string, bool) {
	var kept strings.Builder
	kept.Grow(len(text))
	attributedOnce, removed := false, false
	for text != "" {
		line, rest := c.line(text)
		if attributedOnce && isQuoted(line) {
			text, removed = rest, true
			continue
		}
		if forwarded.MatchString(line[:min(len(line), maxAttribution)]) {
			kept.WriteString(text)
			break
		}
		if after, dated, ok := attributed(text); ok {
			if quotes(after) {
				text, attributedOnce, removed = after, true, true
				continue
			}
			if dated {
				removed = true
				break // what follows is quoted without marks
			}
		}
		if repeats(text) {
			removed = true
			break
		}
		kept.WriteString(line)
		kept.WriteByte('\n')
		text = rest
	}
	return strings.Trim(kept.String(), "\n"), removed
}

func isQuoted(line string) bool {
	return strings.HasPrefix(line, ">") || strings.HasPrefix(strings.TrimLeft(line, " "), "> ")
}

const (
	// maxAttribution is the longest line that is looked at for these forms.
	maxAttribution = 300
	// maxSkipped is how much of a line is skipped to reach the next one.
	maxSkipped = 16 << 10
)

// beginning splits a text at its first line end. Of a long line only the beginning is returned: no form that
// is looked for is longer, and each line is looked at from several before it. The rest after a line that has
// no end in sight is "".
func beginning(text string) (line, rest string) {
	end := strings.IndexByte(text[:min(len(text), maxSkipped)], '\n')
	if end < 0 {
		return text[:min(len(text), maxAttribution+1)], ""
	}
	return text[:min(end, maxAttribution+1)], text[end+1:]
}

// attributed returns what comes after the line that names the writer of a quotation. Programs fold long ones. dated is
// true for one with a date: without it, only marks show what is quoted.
func attributed(text string) (rest string, dated, ok bool) {
	joined := ""
	for n := 0; n < 3 && text != ""; n++ {
		var line string
		line, text = beginning(text)
		if len(line) > maxAttribution {
			return "", false, false
		}
		if line = strings.TrimSpace(line); line == "" || len(joined)+len(line) > maxAttribution || isQuoted(line) {
			return "", false, false
		}
		if joined != "" {
			joined += " "
		}
		joined += line
		if strings.HasSuffix(line, ":") || strings.HasSuffix(line, "：") {
			dated, ok = isAttribution(joined)
			return text, dated, ok
		}
	}
	return "", false, false
}

// isAttribution reports whether a line names a writer: with a date and an address, or a date, a clock and a verb, as
// mail programs of all languages write it. A verb alone is for text with marks.
func isAttribution(line string) (dated, ok bool) {
	if isFieldLine(line) {
		return false, false
	}
	verb, address, date := wroteVerb.MatchString(line), addressLike.MatchString(line), dateLike.MatchString(line)
	return date && (address || verb && clockLike.MatchString(line)), verb || address && date
}

// quotes reports whether the next line with text is quoted.
func quotes(text string) bool {
	for n := 0; n < 4 && text != ""; n++ {
		var line string
		line, text = beginning(text)
		if line = strings.TrimSpace(line); line != "" {
			return strings.HasPrefix(line, ">")
		}
	}
	return false
}

// The fields of a message that is repeated without marks, by what they mean.
const (
	fieldFrom = 1 << iota
	fieldDate
	fieldTo
	fieldSubject
)

var blockFields = map[string]int{
	"from": fieldFrom, "von": fieldFrom, "de": fieldFrom, "da": fieldFrom, "van": fieldFrom, "från": fieldFrom,
	"fra": fieldFrom, "od": fieldFrom, "от": fieldFrom, "lähettäjä": fieldFrom, "kimden": fieldFrom, "发件人": fieldFrom,
	"寄件者": fieldFrom, "差出人": fieldFrom, "보낸 사람": fieldFrom, "expéditeur": fieldFrom, "remitente": fieldFrom, "mittente": fieldFrom,
	"sent": fieldDate, "date": fieldDate, "gesendet": fieldDate, "datum": fieldDate, "envoyé": fieldDate, "enviado": fieldDate,
	"fecha": fieldDate, "inviato": fieldDate, "data": fieldDate, "verzonden": fieldDate, "skickat": fieldDate, "sendt": fieldDate,
	"wysłano": fieldDate, "отправлено": fieldDate, "дата": fieldDate, "lähetetty": fieldDate, "gönderildi": fieldDate, "dato": fieldDate,
	"发送时间": fieldDate, "日期": fieldDate, "送信日時": fieldDate, "寄件日期": fieldDate, "보낸 날짜": fieldDate, "odesláno": fieldDate, "enviado el": fieldDate,
	"to": fieldTo, "an": fieldTo, "à": fieldTo, "para": fieldTo, "a": fieldTo, "aan": fieldTo, "till": fieldTo, "til": fieldTo,
	"do": fieldTo, "кому": fieldTo, "vastaanottaja": fieldTo, "kime": fieldTo, "收件人": fieldTo, "收件者": fieldTo, "宛先": fieldTo,
	"받는 사람": fieldTo, "komu": fieldTo, "destinataire": fieldTo,
	"subject": fieldSubject, "betreff": fieldSubject, "objet": fieldSubject, "asunto": fieldSubject, "oggetto": fieldSubject,
	"onderwerp": fieldSubject, "ämne": fieldSubject, "emne": fieldSubject, "temat": fieldSubject, "тема": fieldSubject, "aihe": fieldSubject,
	"konu": fieldSubject, "主题": fieldSubject, "主旨": fieldSubject, "件名": fieldSubject, "제목": fieldSubject, "předmět": fieldSubject, "assunto": fieldSubject,
}

// blockField returns which field a line has, 0 for none, and its value. Some programs write its name in bold.
func blockField(line string) (field int, value string) {
	name, value, ok := strings.Cut(strings.Replace(line[:min(len(line), maxAttribution)], "：", ":", 1), ":")
	if !ok || len(name) > 40 {
		return 0, ""
	}
	return blockFields[strings.ToLower(strings.Trim(name, " *\t\u00a0"))], strings.Trim(value, " *\t\u00a0")
}

func isFieldLine(line string) bool {
	field, value := blockField(line)
	return field != 0 && value != ""
}

// repeats reports whether an original message begins.
func repeats(text string) bool {
	for range 9 {
		line, rest := beginning(text)
		if len(line) > maxAttribution {
			return false
		}
		if !original.MatchString(line) {
			break
		}
		text = rest // the mark alone may be part of the text
		if _, dated, ok := attributed(strings.TrimLeft(rest[:min(len(rest), maxSkipped)], "\n")); ok && dated {
			return true
		}
	}
	return hasBlock(text)
}

// maxBlock is how many lines the fields of a message take.
const maxBlock = 12

// hasBlock reports whether a text begins with the fields of a message that is repeated: who wrote it, when, and to
// which people or on what. Less than that may be part of a text.
func hasBlock(text string) bool {
	found := 0
	for n := 0; n < maxBlock && text != ""; n++ {
		var line string
		line, text = beginning(text)
		field, value := blockField(line)
		switch {
		case found == 0 && line == "":
		case found == 0 && field != fieldFrom:
			return false
		case line == "" && found != 0:
			n = maxBlock
		case value == "", field == fieldDate && !dateLike.MatchString(value):
		default:
			found |= field
		}
	}
	return found&fieldFrom != 0 && found&fieldDate != 0 && found&(fieldTo|fieldSubject) != 0
}
