package grammar

import (
	"maps"
	"slices"
	"strings"
)

// formats are expressions for the values of format that are supported. Each
// takes less than its standard allows where the rest is of no use to generate:
// no leap seconds, hosts and addresses of moderate length.
var formats = map[string]string{
	"date":      date,
	"time":      clock,
	"date-time": `(?:` + date + `)T` + clock,
	"duration":  duration,
	"email":     `[A-Za-z0-9_+-]{1,20}(?:\.[A-Za-z0-9_+-]{1,20}){0,2}@` + label + `(?:\.` + label + `){1,4}`,
	"hostname":  host,
	"ipv4":      ipv4,
	"ipv6":      ipv6,
	"uuid":      `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`,
	"uri": `[A-Za-z][A-Za-z0-9+.-]*:(?://(?:` + unreserved + `+@)?` + host + `(?::\d{1,5})?(?:/` + pchar + `*)*|` + pchar + `+(?:/` + pchar + `*)*)` +
		`(?:\?(?:` + pchar + `|[/?])*)?(?:#(?:` + pchar + `|[/?])*)?`,
}

const (
	// 30 February is no date; 29 is one in years that 4 divides, and not 100 unless 400.
	date = `\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))|` +
		`(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29`
	clock = `(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
	// RFC 3339, appendix A.
	duration = `P(?:(?:` + days + `)(?:T(?:` + hours + `))?|T(?:` + hours + `)|\d{1,9}W)`
	days     = `\d{1,9}D|\d{1,9}M(?:\d{1,9}D)?|\d{1,9}Y(?:\d{1,9}M(?:\d{1,9}D)?)?`
	hours    = `\d{1,9}S|\d{1,9}M(?:\d{1,9}S)?|\d{1,9}H(?:\d{1,9}M(?:\d{1,9}S)?)?`
	// At most 47 characters a label of 63, and 239 a host of 253; no two hyphens
	// together, as those are of encoded names.
	label = `[A-Za-z0-9]{1,15}(?:-[A-Za-z0-9]{1,15}){0,2}`
	host  = label + `(?:\.` + label + `){0,4}`
	octet = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	ipv4  = `(?:` + octet + `\.){3}` + octet
	hex4  = `[0-9a-fA-F]{1,4}`
	ipv6  = `(?:` + hex4 + `:){7}` + hex4 + `|(?:` + hex4 + `:){6}` + ipv4 +
		`|::(?:` + hex4 + `(?::` + hex4 + `){0,6})?|` + hex4 + `::(?:` + hex4 + `(?::` + hex4 + `){0,5})?` +
		`|(?:` + hex4 + `:){2}(?::` + hex4 + `){1,5}|(?:` + hex4 + `:){2}:|(?:` + hex4 + `:){3}(?::` + hex4 + `){1,4}|(?:` + hex4 + `:){3}:` +
		`|(?:` + hex4 + `:){4}(?::` + hex4 + `){1,3}|(?:` + hex4 + `:){4}:|(?:` + hex4 + `:){5}(?::` + hex4 + `){1,2}|(?:` + hex4 + `:){5}:` +
		`|(?:` + hex4 + `:){6}:` + hex4 + `|(?:` + hex4 + `:){6}:|(?:` + hex4 + `:){7}:`
	unreserved = `[A-Za-z0-9._~-]`
	pchar      = `(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})`
)

func formatNames() string { return strings.Join(slices.Sorted(maps.Keys(formats)), ", ") }
