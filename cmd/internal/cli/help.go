package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"mlxcel/cmd/internal/terminal"
)

// help prints the program's help, or that of the command in args.
func (p *Program) help(args []string, w io.Writer) error {
	switch {
	case len(args) == 0:
		return p.writeHelp(w)
	case len(args) > 1:
		return Usagef("help takes the name of one command")
	case args[0] == "help" || args[0] == "version":
		return p.writeHelp(w)
	}
	c, err := p.find(args[0])
	if err != nil {
		return err
	}
	return p.writeCommandHelp(c, w)
}

func (p *Program) writeHelp(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s COMMAND [flags]\n\nCommands:\n", p.About, p.Name)
	commands := append(p.Commands[:len(p.Commands):len(p.Commands)],
		Command{Name: "version", Short: "print the version"},
		Command{Name: "help", Short: "print this help, or that of a command"})
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-10s  %s\n", c.Name, c.Short)
	}
	fmt.Fprintf(&b, "\nSee '%s COMMAND --help' for what a command takes.\n", p.Name)
	_, err := w.Write(b.Bytes())
	return err
}

func (p *Program) writeCommandHelp(c *Command, w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s: %s\n\nUsage:\n  %s %s %s\n", p.Name, c.Name, c.Short, p.Name, c.Name, c.Usage)
	if len(c.Aliases) > 0 {
		fmt.Fprintf(&b, "\nAlso called:\n  %s\n", strings.Join(c.Aliases, ", "))
	}
	if c.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(c.Long))
	}
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n  %s\n", strings.ReplaceAll(strings.TrimSpace(c.Example), "\n", "\n  "))
	}
	set, _ := p.flags(c)
	set.BoolP("help", "h", false, "print this help")
	// What pflag says of booleans is true and says little.
	const noise = "[=true|false]"
	usages := strings.ReplaceAll(set.FlagUsagesWrapped(terminal.Width(w)), noise, strings.Repeat(" ", len(noise)))
	fmt.Fprintf(&b, "\nFlags:\n%s", usages)
	_, err := w.Write(b.Bytes())
	return err
}
