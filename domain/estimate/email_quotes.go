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
		`original-nachricht|message d['’]origine|message original|mensaje original|messaggio originale|mensagem original|` +
		`oorspronkelijk bericht|oorspronkelijke bericht|ursprungligt meddelande|opprinnelig melding|oprindelig meddelelse|` +
		`wiadomość oryginalna|исходное сообщение|вихідне повідомлення|původní zpráva|eredeti üzenet|orijinal mesaj|` +
		`alkuperäinen viesti|αρχικό μήνυμα|mesaj original|原始邮件|原始郵件|元のメッセージ|원본 메[일시]지?|original)[ \t]*-{2,}|_{20,})[ \t]*$`)
	// quoting is what some programs write before an address and a quotation.
	quoting = regexp.MustCompile(`(?i)^(?:quoting|zitat von|citando|citazione di|citation de|citerar|citat från|cytowanie)\b.*@.*:$`)
	// passedOn is a subject that a program marks as that of a forward elsewhere than at its beginning.
	passedOn = regexp.MustCompile(`(?i)^\[(?:fwd|fw):|\((?:fwd|fw)\)\s*$`)
	// forwarded is what a line before a message that is passed on has, in the languages of mail programs.
	forwarded = regexp.MustCompile(`(?i)forwarded (?:message|by|mail)|weitergeleitete[rn]?\b|transféré|réexpédié|reenviado|inoltrato|` +
		`encaminhada|doorgestuurd|vidarebefordra|videresend|przekazan|пересыла|переадрес|přeposlan|továbbított|redirecționat|` +
		`yönlendirilen|iletilen (?:mesaj|ileti)|välitetty|προωθημένο|הועבר|转发|轉寄|転送|전달된`)
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

// maxPrefixes is how many beginnings of a subject are looked at. Of "EXT: FW:" the first is that of a filter.
const maxPrefixes = 4

// isReply reports whether a message answers another, so that its thread has the text that it quotes.
func isReply(h header, subject string) bool {
	if passedOn.MatchString(subject) {
		return false
	}
	for rest, n := subject, 0; n < maxPrefixes; n++ {
		m := subjectPrefix.FindStringSubmatchIndex(rest)
		if m == nil {
			break
		}
		if reply, known := prefixes[strings.ToLower(rest[m[2]:m[3]])]; known {
			return reply
		}
		rest = strings.TrimLeft(rest[m[1]:], " \t")
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
		if isPassedOn(line) {
			kept.WriteString(text)
			break
		}
		if after, ok := attributedInside(text); ok {
			text, attributedOnce, removed = after, true, true
			continue
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

// isPassedOn reports whether a line announces a message that is passed on. It stands alone: between signs, before a
// colon, or with a word for a beginning.
func isPassedOn(line string) bool {
	if line = strings.TrimSpace(line[:min(len(line), maxAttribution)]); line == "" {
		return false
	}
	isFramed := strings.IndexByte("-_=*~", line[0]) >= 0 || strings.HasSuffix(line, ":") || strings.HasSuffix(line, "：")
	for _, begin := range []string{"begin", "anfang", "début", "inicio", "inizio", "início"} {
		isFramed = isFramed || len(line) > len(begin) && strings.EqualFold(line[:len(begin)], begin)
	}
	return isFramed && forwarded.MatchString(line)
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

// attributedInside returns what comes after a line that names the writer of a quotation and is part of it, as Apple
// Mail has it: "> On 4 Jun 2025, at 18:20, Ivo wrote:".
func attributedInside(text string) (rest string, ok bool) {
	joined := ""
	for n := 0; n < 3 && text != ""; n++ {
		var line string
		line, text = beginning(text)
		if len(line) > maxAttribution || !isQuoted(line) {
			return "", false
		}
		joined += strings.TrimPrefix(strings.TrimLeft(line, " "), ">") + "\n"
		if after, dated, ok := attributed(joined); ok && dated && after == "" && isQuoted(text) {
			return text, true
		}
	}
	return "", false
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
		if line = plainAttribution(line); line == "" || len(joined)+len(line) > maxAttribution || isQuoted(line) {
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

// plainAttribution returns a line without the marks of direction that programs put around addresses, and one between
// dashes, "---- On … wrote ----", as others have it.
func plainAttribution(line string) string {
	line = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\u200e' || r == '\u200f' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' {
			return -1
		}
		return r
	}, line))
	if strings.HasPrefix(line, "--") && strings.HasSuffix(line, "wrote ----") {
		line = strings.Trim(line, "- ") + ":"
	}
	return line
}

// isAttribution reports whether a line names a writer: with a date and an address, or a date, a clock and a verb, as
// mail programs of all languages write it. A verb alone is for text with marks.
func isAttribution(line string) (dated, ok bool) {
	if isFieldLine(line) {
		return false, false
	}
	verb := wroteVerb.MatchString(line) || quoting.MatchString(line)
	address, date := addressLike.MatchString(line), dateLike.MatchString(line)
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

var blockFields = fieldTable(map[int]string{
	fieldFrom: "from|von|de|da|van|från|fra|od|от|від|lähettäjä|kimden|发件人|寄件者|差出人|보낸 사람|보낸사람|expéditeur|" +
		"remitente|mittente|feladó|από|de la|от кого|מאת|من|dari|từ",
	fieldDate: "sent|date|gesendet|datum|envoyé|enviado|enviada|fecha|inviato|data|verzonden|skickat|sendt|" +
		"wysłano|wysłane|отправлено|дата|надіслано|lähetetty|päiväys|gönderildi|gönderilen|tarih|dato|发送时间|日期|送信日時|日時|日付|寄件日期|보낸 날짜|날짜|" +
		"odesláno|enviado el|enviada em|enviado em|elküldve|dátum|στάλθηκε|ημερομηνία|trimis|נשלח|תאריך|dikirim|tanggal|ngày",
	fieldTo: "to|an|à|pour|para|a|aan|till|til|do|кому|vastaanottaja|kime|收件人|收件者|宛先|받는 사람|받는사람|komu|destinataire|" +
		"címzett|προς|către|אל|kepada|đến",
	fieldSubject: "subject|betreff|objet|sujet|asunto|oggetto|onderwerp|ämne|emne|temat|тема|aihe|" +
		"konu|主题|主旨|件名|제목|předmět|assunto|tárgy|θέμα|subiect|נושא|subjek|chủ đề",
})

func fieldTable(names map[int]string) map[string]int {
	table := map[string]int{}
	for field, list := range names {
		for name := range strings.SplitSeq(list, "|") {
			table[name] = field
		}
	}
	return table
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
	isMarked := false
	for range 9 {
		line, rest := beginning(text)
		if len(line) > maxAttribution {
			return false
		}
		if !original.MatchString(line) {
			break
		}
		text, isMarked = rest, true // the mark alone may be part of the text
		if _, dated, ok := attributed(strings.TrimLeft(rest[:min(len(rest), maxSkipped)], "\n")); ok && dated {
			return true
		}
	}
	return hasBlock(text, isMarked)
}

// maxBlock is how many lines the fields of a message take.
const maxBlock = 12

// hasBlock reports whether a text begins with the fields of a message that is repeated: who wrote it, when, to which
// people and on what. One may lack where the first is an address, or a mark is before them; less may be part of a text.
func hasBlock(text string, isMarked bool) bool {
	const all = fieldFrom | fieldDate | fieldTo | fieldSubject
	found, hasAddress, hasEmpty := 0, false, false
	for n := 0; n < maxBlock && text != ""; n++ {
		var line string
		line, text = beginning(text)
		field, value := blockField(line)
		switch {
		case found == 0 && line == "":
		case found == 0 && field == 0, found == 0 && !isMarked && field&(fieldFrom|fieldDate) == 0:
			return false
		case line == "" && found != 0:
			n = maxBlock
		case field == fieldDate && !dateLike.MatchString(value), value == "" && field&(fieldTo|fieldSubject) == 0:
			if found == 0 {
				return false
			}
		default:
			found |= field
			hasAddress = hasAddress || field == fieldFrom && addressLike.MatchString(value)
			hasEmpty = hasEmpty || value == ""
		}
	}
	if found == all {
		return !hasEmpty || hasAddress || isMarked
	}
	return found&fieldFrom != 0 && found&fieldDate != 0 && found&(fieldTo|fieldSubject) != 0 && (hasAddress || isMarked)
}
