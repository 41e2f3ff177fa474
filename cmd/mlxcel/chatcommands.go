package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"mlxcel/cmd/internal/cli"
)

// chatCommand is what a line that begins with / may be.
type chatCommand struct {
	names     []string
	arguments string
	help      string
	run       func(c *conversation, argument string) error
}

// chatCommands is a function, as /help prints the table that it is in.
func chatCommands() []chatCommand {
	return []chatCommand{
		{[]string{"help", "?"}, "", "print this help", (*conversation).help},
		{[]string{"clear", "reset"}, "", "begin a new conversation, with the same system message", (*conversation).clear},
		{[]string{"system"}, "[TEXT]", "print the system message, or replace it; - removes it", (*conversation).system},
		{[]string{"set"}, "[NAME VALUE]", "print how answers are chosen, or change it, as in /set temp 0.8", (*conversation).set},
		{[]string{"stats"}, "", "print the figures of the last answer", (*conversation).stats},
		{[]string{"exit", "quit", "bye"}, "", "leave", func(*conversation, string) error { return errLeave }},
	}
}

// A path such as /etc/hosts is no command.
var commandPattern = regexp.MustCompile(`(?s)^/([a-z]+|\?)(?:\s+(.*))?$`)

// parseCommand splits "/name argument"; ok is false for a message.
func parseCommand(line string) (name, argument string, ok bool) {
	m := commandPattern.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

func (c *conversation) command(name, argument string) error {
	var names []string
	for _, command := range chatCommands() {
		if slices.Contains(command.names, name) {
			if command.arguments == "" && argument != "" {
				return fmt.Errorf("/%s takes nothing behind it", name)
			}
			return command.run(c, argument)
		}
		names = append(names, command.names...)
	}
	if hint := cli.DidYouMean(name, names, "/"); hint != "" {
		return fmt.Errorf("unknown command /%s%s", name, hint)
	}
	return fmt.Errorf("unknown command /%s: /help lists those there are", name)
}

// completeCommand returns the commands that a line may become.
func completeCommand(line string) []string {
	var fit []string
	for _, command := range chatCommands() {
		for _, name := range command.names {
			if strings.HasPrefix("/"+name, line) && line != "" {
				fit = append(fit, "/"+name)
			}
		}
	}
	return fit
}

func (c *conversation) help(string) error {
	for _, command := range chatCommands() {
		usage := "/" + strings.Join(command.names, ", /") + " " + command.arguments
		fmt.Fprintf(c.streams.Err, "  %-22s  %s\n", usage, command.help)
	}
	fmt.Fprintf(c.streams.Err, "  %-22s  %s\n", `"""`, `begin and end a message of several lines`)
	fmt.Fprintf(c.streams.Err, "  %-22s  %s\n", "Ctrl-C", "end an answer; at the prompt, leave")
	return nil
}

func (c *conversation) clear(string) error {
	c.messages = nil
	return nil
}

func (c *conversation) system(text string) error {
	switch {
	case text == "-":
		c.options.system = ""
	case text != "":
		c.options.system = text
	case c.options.system == "":
		fmt.Fprintln(c.streams.Err, "there is no system message")
	default:
		fmt.Fprintln(c.streams.Err, c.options.system)
	}
	return nil
}

// settable are the flags that /set changes.
var settable = []string{
	"max-tokens", "temp", "top-k", "top-p", "min-p", "seed",
	"repetition-penalty", "presence-penalty", "frequency-penalty", "penalty-window",
}

func (c *conversation) set(argument string) error {
	if argument == "" {
		c.printSettings(c.streams.Err)
		return nil
	}
	name, value, _ := strings.Cut(argument, " ")
	value = strings.TrimSpace(value)
	name = strings.ReplaceAll(name, "_", "-")
	if !slices.Contains(settable, name) {
		return fmt.Errorf("there is nothing called %q to set%s", name, cli.DidYouMean(name, settable, ""))
	}
	if value == "" {
		return fmt.Errorf("a value is missing, as in /set %s %s", name, c.options.flags.Lookup(name).Value)
	}
	before := c.options.answerOptions
	flag := c.options.flags.Lookup(name)
	err := flag.Value.Set(value)
	if err != nil {
		err = fmt.Errorf("%s cannot be %q: %w", name, value, err)
	} else {
		err = c.options.answerOptions.check()
	}
	if err != nil {
		c.options.answerOptions = before
		return err
	}
	flag.Changed = true
	return nil
}

func (c *conversation) printSettings(w io.Writer) {
	for _, name := range settable {
		flag := c.options.flags.Lookup(name)
		value := flag.Value.String()
		if name == "seed" && !flag.Changed {
			value = "another one every time"
		}
		fmt.Fprintf(w, "  %-18s  %s\n", name, value)
	}
}

func (c *conversation) stats(string) error {
	if c.last == nil {
		fmt.Fprintln(c.streams.Err, "there is no answer yet")
		return nil
	}
	fmt.Fprintln(c.streams.Err, c.last.line())
	fmt.Fprint(c.streams.Err, c.last.details())
	fmt.Fprintf(c.streams.Err, "chat     %s, %s answered\n", count(len(c.messages), "message"), count(c.total, "token"))
	return nil
}
