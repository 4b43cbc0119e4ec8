"""What comes in and goes out: arguments, images, saved states, exported models."""
