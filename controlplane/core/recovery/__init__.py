"""Take a failure from verdict to the first step of the generation that replaces the broken one."""
