"""Result stores."""
