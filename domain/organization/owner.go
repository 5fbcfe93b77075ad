package organization

import (
	"strings"

	"github.com/annals-project/annals/domain/person"
)

// The starting credits in tenths, and those of an owner with a work email.
const (
	startingTenths     = 150_000 * 10
	startingWorkTenths = 400_000 * 10
)

// StartingTenths returns the starting credits of an organization on a metered plan, in tenths of a
// credit. workEmail is true if its owner had a work email when it was created.
func StartingTenths(workEmail bool) int64 {
	if workEmail {
		return startingWorkTenths
	}
	return startingTenths
}

// WorkEmail reports whether an address is one of an employer: its domain is not that of a free-mail
// provider, nor below one.
func WorkEmail(email string) bool {
	if !person.ValidEmail(email) {
		return false
	}
	domain := strings.ToLower(email[strings.LastIndexByte(email, '@')+1:])
	for {
		if freeMail(domain) {
			return false
		}
		_, parent, ok := strings.Cut(domain, ".")
		if !ok {
			return true
		}
		domain = parent
	}
}

// freeMail reports whether a domain is that of a free-mail provider.
func freeMail(domain string) bool {
	switch domain {
	case "gmail.com", "googlemail.com",
		"outlook.com", "hotmail.com", "live.com", "msn.com", "passport.com",
		"hotmail.co.uk", "hotmail.de", "hotmail.es", "hotmail.fr", "hotmail.it", "live.co.uk", "live.de", "live.fr", "live.it", "live.nl",
		"outlook.de", "outlook.es", "outlook.fr", "outlook.it", "outlook.jp", "outlook.com.br",
		"yahoo.com", "ymail.com", "rocketmail.com", "yahoo.ca", "yahoo.co.in", "yahoo.co.jp", "yahoo.co.uk", "yahoo.com.ar", "yahoo.com.au",
		"yahoo.com.br", "yahoo.com.mx", "yahoo.de", "yahoo.es", "yahoo.fr", "yahoo.in", "yahoo.it", "aol.com", "aim.com",
		"icloud.com", "me.com", "mac.com",
		"proton.me", "protonmail.com", "protonmail.ch", "pm.me", "tutanota.com", "tutanota.de", "tuta.io", "tuta.com", "hey.com",
		"fastmail.com", "fastmail.fm", "hushmail.com", "mailbox.org", "posteo.de", "posteo.net", "runbox.com", "startmail.com", "zoho.com", "zohomail.com",
		"gmx.com", "gmx.net", "gmx.de", "gmx.at", "gmx.ch", "gmx.fr", "web.de", "freenet.de", "t-online.de", "mail.com", "email.com", "inbox.com",
		"orange.fr", "wanadoo.fr", "free.fr", "laposte.net", "sfr.fr", "libero.it", "virgilio.it", "tiscali.it", "terra.es", "telefonica.net",
		"btinternet.com", "sky.com", "virginmedia.com", "talktalk.net", "comcast.net", "verizon.net", "att.net", "sbcglobal.net", "bellsouth.net", "cox.net",
		"charter.net", "earthlink.net", "juno.com", "optonline.net", "rogers.com", "shaw.ca", "sympatico.ca", "bigpond.com", "optusnet.com.au",
		"mail.ru", "bk.ru", "inbox.ru", "list.ru", "internet.ru", "yandex.ru", "yandex.com", "ya.ru", "rambler.ru", "ukr.net", "seznam.cz", "wp.pl", "o2.pl",
		"onet.pl", "interia.pl", "abv.bg", "centrum.cz", "azet.sk",
		"qq.com", "foxmail.com", "163.com", "126.com", "yeah.net", "sina.com", "sina.cn", "sohu.com", "aliyun.com", "naver.com", "daum.net", "hanmail.net",
		"rediffmail.com", "uol.com.br", "bol.com.br", "terra.com.br", "ig.com.br",
		"mailinator.com", "guerrillamail.com", "10minutemail.com", "yopmail.com", "sharklasers.com", "tempmail.com", "temp-mail.org", "trashmail.com",
		"duck.com", "simplelogin.com", "anonaddy.com", "privaterelay.appleid.com":
		return true
	default:
		return false
	}
}
